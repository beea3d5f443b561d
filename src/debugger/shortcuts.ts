import { find } from './element.ts';

const OFF = 'hubgate-debugger-shortcuts-off';

/**
 * Single keys, where nobody types; they can be switched off (WCAG 2.2 §2.1.4), which is all that the
 * page remembers.
 */
export function enableShortcuts(actions: Readonly<Record<string, () => void>>): void {
  const box = find('shortcuts-on', HTMLInputElement);
  box.checked = localStorage.getItem(OFF) === null;
  box.addEventListener('change', () => {
    if (box.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, '1');
  });
  document.addEventListener('keydown', (event) => {
    if (!box.checked || event.ctrlKey || event.altKey || event.metaKey || isTyping(event)) return;
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  });
}

function isTyping({ target }: KeyboardEvent): boolean {
  if (target instanceof HTMLInputElement) return target.type !== 'checkbox';
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

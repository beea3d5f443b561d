import { element } from './element.ts';

/** How long "Copied" is shown, in milliseconds. */
const SHOWN_MS = 2_000;
/** Characters of an id that is shown whole, and what is shown of a longer one. */
const [MAX_ID, SHOWN_OF_ID] = [16, 8];

/**
 * A button that copies a text.
 *
 * @param name for a screen reader: what is copied
 * @param shown where the text stands, selected where the browser gives no clipboard
 */
export function copyButton(name: string, text: () => string, shown: HTMLElement): HTMLElement {
  const button = element('button', { type: 'button', class: 'small', 'aria-label': name }, 'Copy');
  button.addEventListener('click', () => {
    void copy(text(), shown).then((done) => {
      button.textContent = done ? 'Copied' : 'Selected: press Ctrl+C';
      setTimeout(() => (button.textContent = 'Copy'), SHOWN_MS);
    });
  });
  return button;
}

/** An id as lists show it: the beginning of a UUID, or the end of any other long id. */
export function shortId(id: string): string {
  const bare = id.replace(/^urn:uuid:/, '');
  if (bare.length <= MAX_ID) return bare;
  return bare === id ? `…${id.slice(-SHOWN_OF_ID)}` : `${bare.slice(0, SHOWN_OF_ID)}…`;
}

/** False where the browser gives no clipboard, as over plain HTTP: then the text is selected. */
async function copy(text: string, shown: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return false;
  }
}

import { Idiomorph } from 'idiomorph';

/** Added by scripts right in the body, beside what the app has sent: chats, dialogs, notes. */
const added = new WeakSet<Node>();
const observer = new MutationObserver((records) => {
  for (const { addedNodes } of records) for (const node of addedNodes) added.add(node);
});

/** Turns the page into a document, but for what its visitor is doing. */
export async function morphPage(fetched: Document): Promise<void> {
  const apply = (): void => {
    document.title = fetched.title;
    observer.disconnect();
    void Idiomorph.morph(document.body, fetched.body, { callbacks });
    observe();
    // It knows only of elements that it has looked at.
    (window as { htmx?: { process(element: Element): void } }).htmx?.process(document.body);
  };
  // While a transition runs the page takes no input.
  const isStill = mayLeave() && !matchMedia('(prefers-reduced-motion: reduce)').matches;
  if (document.hidden || !isStill || !('startViewTransition' in document)) apply();
  else {
    const { ready, updateCallbackDone } = document.startViewTransition(apply);
    // Another one takes its place where the page moves on: the change is made all the same.
    ready.catch(() => {});
    await updateCallbackDone;
  }
}

/** Whether nothing would be lost with the page. */
export function mayLeave(): boolean {
  return !holds(document.body);
}

const CONTROLS = 'input,textarea,select,audio,video,[contenteditable]';

const callbacks = {
  beforeNodeMorphed(old: Node, next: Node): boolean {
    if (!(old instanceof HTMLElement) || !(next instanceof HTMLElement)) return true;
    if (isBusy(old) || isOff(old)) return false;
    if (old.dataset['hubLive'] !== 'replace') return true;
    for (const { name } of [...old.attributes])
      if (!next.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes) old.setAttribute(name, value);
    old.replaceChildren(...document.importNode(next, true).childNodes);
    return false;
  },
  beforeNodeRemoved(node: Node): boolean {
    return !(node instanceof HTMLElement) || !(added.has(node) || isOff(node) || holds(node));
  },
  beforeAttributeUpdated(name: string, element: Element): boolean {
    // Scripts say by it how the whole page is shown.
    if (element === document.body) return false;
    if (name === 'open' && /^D(?:ETAILS|IALOG)$/.test(element.tagName)) return false;
    return !(element instanceof HTMLElement) || element.dataset['hubLive'] !== 'children';
  },
};

function isOff(element: HTMLElement): boolean {
  return element.dataset['hubLive'] === 'off' || 'turboPermanent' in element.dataset;
}

function holds(element: HTMLElement): boolean {
  return isBusy(element) || [...element.querySelectorAll<HTMLElement>(CONTROLS)].some(isBusy);
}

/** Whether the visitor types in it, has changed it, or plays it. */
function isBusy(element: HTMLElement): boolean {
  if (element instanceof HTMLMediaElement) return !element.paused;
  const isActive = element === document.activeElement;
  if (element instanceof HTMLInputElement) {
    const { type, value, defaultValue, checked, defaultChecked, files } = element;
    if (type === 'hidden') return false;
    if (files !== null) return files.length > 0;
    return isActive || checked !== defaultChecked || value !== defaultValue;
  }
  if (element instanceof HTMLTextAreaElement) {
    return isActive || element.value !== element.defaultValue;
  }
  if (element instanceof HTMLSelectElement) {
    const options = [...element.options];
    const hasDefault = element.multiple || options.some(({ defaultSelected }) => defaultSelected);
    return (
      isActive ||
      options.some(({ selected, defaultSelected }, index) => {
        return selected !== (hasDefault ? defaultSelected : index === 0);
      })
    );
  }
  return isActive && element.isContentEditable;
}

function observe(): void {
  observer.observe(document.body, { childList: true });
}

observe();

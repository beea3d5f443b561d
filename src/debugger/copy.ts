import { element } from './element.ts';

/** How long "Copied" is shown, in milliseconds. */
const SHOWN_MS = 2_000;
/** Characters of an id that is shown completely, and of the part of a longer one that is shown. */
const [MAX_ID, SHOWN_OF_ID] = [16, 8];

/**
 * Creates a button that copies a text.
 *
 * @param name of the copied content, for a screen reader
 * @param shown the element with the text, which is selected if the browser offers no clipboard
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

/** The short form of an id in lists: the beginning of a UUID, or the end of any other long id. */
export function shortId(id: string): string {
  const bare = id.replace(/^urn:uuid:/, '');
  if (bare.length <= MAX_ID) return bare;
  return bare === id ? `…${id.slice(-SHOWN_OF_ID)}` : `${bare.slice(0, SHOWN_OF_ID)}…`;
}

/** Returns false if the browser offers no clipboard, as over plain HTTP. The text is then selected. */
async function copy(text: string, shown: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return false;
  }
}

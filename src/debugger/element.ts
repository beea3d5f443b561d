/** Creates an element. Its contents are text, never HTML. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * Returns the element with an id.
 *
 * @throws TypeError if the page has no element of that kind
 */
export function find<E extends HTMLElement>(id: string, kind: new () => E): E {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new TypeError(`the page has no #${id}`);
}

/** The non-empty lines of a text field. */
export function linesOf(text: string): readonly string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

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

/*
 * Elements that a framework renders in the browser. The server's HTML is only where it begins ("hydration"):
 * it keeps a model of what it has rendered, and changes the page from there. If another script removes or
 * inserts an element, React fails with all of the page, and others show items twice or not at all. So such
 * elements are left to the framework.
 */
import { isElement } from './sent-document.ts';

/**
 * Properties that frameworks leave at an element, or at the container of their elements: React, Vue, Preact,
 * Svelte up to version 4, and Angular. Libraries that work with the elements of the server as they are, such as
 * jQuery, Alpine, Stimulus and htmx, are missing on purpose.
 */
const MARKS =
  /^(?:__react(?:Fiber|Container|Props)\$|_reactRootContainer$|__vue(?:_app)?__$|_vnode$|__k$|hydrate_init$|__ngContext__$)/;

/** Whether a framework renders the element or its children. */
export function isOfFramework(shown: Element): boolean {
  if (Object.keys(shown).some((name) => MARKS.test(name))) return true;
  return [shown, ...shown.childNodes].some(
    (node) =>
      // The HTML of Svelte begins with this comment since version 5.
      ('__svelte' in window && node instanceof Comment && node.data === '[') ||
      // Solid marks the elements that it has taken over from the server.
      ('_$HY' in window && isElement(node) && node.hasAttribute('data-hk')) ||
      // Lit leaves this at the node before which it renders.
      '_$litPart$' in node ||
      // DataTables leaves this at each row. It draws the rows that it knows, and drops all others.
      '_DT_RowIndex' in node,
  );
}

/** Whether an attribute is the state of a component: if it changes, Alpine drops what the visitor has done. */
export function isState(name: string, shown: Element): boolean {
  return name === 'x-data' && '_x_dataStack' in shown;
}

/** Whether the page shows what the server has changed, wherever in the element, beside what scripts have added. */
export function showsChanges(sent: Node, next: Node, shown: Node): boolean {
  const [before, after, now] = [sent, next, shown].map(countContent) as [Content, Content, Content];
  return [...before.keys(), ...after.keys()].every(
    (one) => before.get(one) === after.get(one) || now.get(one) === after.get(one),
  );
}

/** How often each text and each attribute occurs. */
type Content = Map<string, number>;

/** Attributes that tell visitors something. */
const SEEN = 'class href src alt title aria-label value checked selected disabled'.split(' ');
const UNSEEN = 'script,style,template,noscript,input[type=hidden]';

function countContent(root: Node): Content {
  const content: Content = new Map();
  const add = (text: string): void => {
    if (text !== '') content.set(text, (content.get(text) ?? 0) + 1);
  };
  const read = (node: Node): void => {
    if (node instanceof Text) add(node.data.trim());
    if (isElement(node)) {
      if (node.matches(UNSEEN)) return;
      for (const name of SEEN) {
        const value = node.getAttribute(name);
        if (value !== null) add([node.localName, name, value].join());
      }
    }
    node.childNodes.forEach(read);
  };
  read(root);
  return content;
}

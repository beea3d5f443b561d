import { mayLeave } from './visitor-state.ts';
import { patch, type Withheld } from './three-way-patch.ts';

let lastTitle = document.title;

/** Shows what the server has changed, but for what the visitor and scripts are doing. */
export async function morphPage(sent: Node, fetched: Document): Promise<Withheld> {
  let withheld: Withheld = { visitor: 0, script: 0 };
  const apply = (): void => {
    // A script may count in it what is new.
    if (document.title === lastTitle) document.title = fetched.title;
    lastTitle = fetched.title;
    withheld = patch(sent, fetched.body);
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
  return withheld;
}

// The page at HUB/debug/. The token stays in its field: it is sent only to this hub and is never stored. The
// page explains it with the code of `token inspect`.
import type { MatcherSpec } from '../hub/matcher.ts';
import { showCode, grantAdvice, tokenCommand } from './as-code.ts';
import { copyButton, shortId, element, find, linesOf } from './element.ts';
import type { DebuggerSettings } from './token.ts';
import { explain } from './token-panel.ts';
import { follow, isGap, type StreamState } from './stream.ts';
import { Subscribers } from './subscribers.ts';
import { Traffic } from './traffic.ts';
import { UpdateList } from './update-list.ts';

/** How long typing must pause before the token is explained again, in milliseconds. */
const TYPING_MS = 150;
/** How often the token is explained again without typing, because it expires. */
const EXPLAIN_EVERY_MS = 30_000;

const hub = new URL('..', location.href).href.replace(/\/$/, '');
const settings = (await (await fetch('config.json')).json()) as DebuggerSettings;
const tokenField = find('token', HTMLInputElement);
const subscribeForm = find('subscribe', HTMLFormElement);
const publishForm = find('publish', HTMLFormElement);
const startButton = find('start', HTMLButtonElement);
const tabs = [...document.querySelectorAll<HTMLButtonElement>('nav [data-tab]')];
const stateBadge = find('state', HTMLElement);
const published = find('published', HTMLElement);
const token = (): string => tokenField.value.trim();
const list = new UpdateList();
const traffic = new Traffic();
const subscribers = new Subscribers({ hub, token, count: (count) => traffic.subscribers(count) });
let running = new AbortController();
let wasOpen = false;

find('about', HTMLElement).replaceChildren(
  element('code', {}, hub),
  settings.anonymous ? ' · anonymous subscribers allowed' : ' · subscribers need a token',
  settings.subscriptions ? ' · subscriptions listed' : '',
);
find('who', HTMLElement).hidden = !settings.subscriptions;
find('teach-command', HTMLElement).textContent = tokenCommand(settings, [
  "--subscribe '*'",
  "--publish '*'",
]);
await fillIn();
explainNow();
if (settings.subscriptions && token() !== '') void subscribers.refresh();

let typing: ReturnType<typeof setTimeout> | undefined;
document.addEventListener('input', ({ target }) => {
  if (!(target instanceof HTMLElement) || target.closest('#controls') === null) return;
  // At once: a button that moves later may escape the click on it.
  showFirstStep();
  clearTimeout(typing);
  typing = setTimeout(explainNow, TYPING_MS);
});
setInterval(explainNow, EXPLAIN_EVERY_MS);
tokenField.addEventListener('change', () => {
  if (settings.subscriptions) void subscribers.refresh();
});
subscribeForm.addEventListener('submit', (event) => {
  event.preventDefault();
  subscribe();
});
find('first-step', HTMLButtonElement).addEventListener('click', () =>
  subscribeForm.requestSubmit(),
);
addEventListener('hashchange', () => {
  if (!takeTokenFromLink()) return;
  explainNow();
  if (settings.subscriptions) void subscribers.refresh();
});
for (const tab of tabs) tab.addEventListener('click', () => showPanel(tab.dataset['tab'] ?? ''));
find('stop', HTMLButtonElement).addEventListener('click', () => running.abort());
publishForm.addEventListener('submit', (event) => {
  event.preventDefault();
  void publish();
});
for (const form of [subscribeForm, publishForm]) {
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}
enableShortcuts({
  s: () => subscribeForm.requestSubmit(),
  x: () => running.abort(),
  p: () => list.pause(!list.isPaused),
  c: () => list.clear(),
  t: () => {
    showPanel('token');
    tokenField.focus();
  },
  n: () => {
    showPanel('publish');
    publishForm.querySelector('textarea')?.focus();
  },
  '/': () => {
    showPanel('stream');
    find('filter', HTMLInputElement).focus();
  },
});

// Their forms are handled from here on.
for (const form of [subscribeForm, publishForm]) {
  for (const button of form.querySelectorAll<HTMLButtonElement>('button.primary')) {
    button.disabled = false;
  }
}

/** On a narrow screen, one part of the page is visible at a time. */
function showPanel(name: string): void {
  const main = document.querySelector('main');
  if (main !== null) main.dataset['tab'] = name;
  for (const tab of tabs) tab.setAttribute('aria-pressed', String(tab.dataset['tab'] === name));
}

/**
 * Reads `#token=…` from a link that a program prints when it starts a hub for a demonstration. It is removed
 * from the address at once.
 */
function takeTokenFromLink(): boolean {
  const linked = new URLSearchParams(location.hash.slice(1)).get('token');
  if (linked === null) return false;
  history.replaceState(null, '', location.pathname);
  tokenField.value = linked;
  return true;
}

/** Fills in the token of the link to this page, else that of the playground, which issues one to everyone. */
async function fillIn(): Promise<void> {
  const topic = publishForm.querySelector('textarea');
  if (topic !== null && topic.value === '') topic.value = `${location.origin}/hello`;
  if (takeTokenFromLink() || !settings.playground) return;
  const answer = await fetch('playground-token');
  if (answer.ok) tokenField.value = await answer.text();
}

/** How to get a token is shown only as long as there is none. */
function showFirstStep(): void {
  find('teach-token', HTMLElement).hidden = token() !== '';
}

function explainNow(): void {
  showFirstStep();
  explain(token(), settings, {
    matchers: matchers(),
    topics: linesOf(textOf(publishForm, 'topic')),
  });
}

function matchers(): readonly MatcherSpec[] {
  const exact = linesOf(textOf(subscribeForm, 'match'));
  const patterns = linesOf(textOf(subscribeForm, 'match_urlpattern'));
  return [
    ...exact.map((match) => ({ match, matchType: 'exact' }) as const),
    ...patterns.map((match) => ({ match, matchType: 'urlpattern' }) as const),
  ];
}

function subscribe(): void {
  const url = new URL(hub);
  const wanted = matchers();
  for (const { match, matchType } of wanted) {
    url.searchParams.append(matchType === 'exact' ? 'match' : 'match_urlpattern', match);
  }
  const cursor = textOf(subscribeForm, 'last_event_id').trim() || null;
  running.abort();
  running = new AbortController();
  wasOpen = false;
  list.subscribedTo(wanted);
  const hasToken = token() !== '';
  const { signal } = running;
  const listener = {
    // Messages of an earlier stream are not about this one.
    state: (state: StreamState) => {
      if (signal !== running.signal) return;
      show(state);
      if (state.kind === 'open') showCode({ kind: 'subscribe', url: url.href, cursor, hasToken });
      if (state.kind !== 'refused') return;
      const advice = { use: 'subscribe', matchers: wanted } as const;
      const what = grantAdvice(state.status, advice, hasToken, settings);
      list.notice('bad', `Refused: ${state.why}.`, ...what);
    },
    update: (update: Parameters<UpdateList['add']>[0]) => {
      if (update.id !== '') showCursor(update.id);
      traffic.count();
      list.add(update);
    },
  };
  void follow({ url: url.href, token: token(), cursor }, settings.cursorHeader, listener, signal);
}

function show(state: StreamState): void {
  stateBadge.dataset['state'] = state.kind;
  const hasEnded = state.kind === 'closed' || state.kind === 'refused';
  find('stop', HTMLButtonElement).disabled = hasEnded;
  startButton.textContent = hasEnded ? 'Subscribe' : 'Restart';
  traffic.connected(state.kind === 'open');
  switch (state.kind) {
    case 'connecting':
      stateBadge.textContent =
        state.attempt === 1 ? 'connecting…' : `connecting, attempt ${state.attempt}…`;
      return;
    case 'open':
      stateBadge.textContent = 'open';
      opened(state);
      if (settings.subscriptions) void subscribers.refresh();
      wasOpen = true;
      return;
    case 'waiting': {
      const seconds = (state.milliseconds / 1000).toFixed(1);
      stateBadge.textContent = `lost, retry in ${seconds} s`;
      list.notice('warn', `Connection lost: ${state.why}. Retrying in ${seconds} s.`);
      return;
    }
    case 'refused':
      stateBadge.textContent = `refused: ${state.status}`;
      return;
    case 'closed':
      stateBadge.textContent = 'closed';
      list.notice('muted', 'Unsubscribed.');
  }
}

function opened({ asked, began }: Extract<StreamState, { kind: 'open' }>): void {
  if (began !== null) showCursor(began);
  const header = began === null ? '' : ` (${settings.cursorHeader}: ${began})`;
  if (isGap(asked, began)) {
    const what = began === 'earliest' ? 'sends everything it still has' : `starts after ${began}`;
    list.notice(
      'bad',
      `Gap: the history does not reach back to ${asked}. The hub ${what}; updates may be lost.`,
    );
  } else if (asked === null && wasOpen) {
    list.notice('warn', 'Reconnected. Updates published in the meantime are not shown.');
  } else if (asked !== null && asked !== 'earliest') {
    list.notice('good', `Resumed after ${asked}: nothing was missed.`);
  } else list.notice('good', `Subscribed${header}.`);
}

function showCursor(id: string): void {
  const shown = find('cursor', HTMLElement);
  shown.textContent = id === 'earliest' ? 'no update yet' : shortId(id);
  shown.title = id;
}

async function publish(): Promise<void> {
  const form = new FormData(publishForm);
  const topics = linesOf(textOf(publishForm, 'topic'));
  const fields = topics.map((topic) => ['topic', topic] as [string, string]);
  for (const name of ['data', 'id', 'type', 'retry']) {
    const value = textOf(publishForm, name);
    if (value !== '') fields.push([name, value]);
  }
  if (form.has('private')) fields.push(['private', 'on']);
  const hasToken = token() !== '';
  try {
    const headers = new Headers(hasToken ? { Authorization: `Bearer ${token()}` } : {});
    const body = new URLSearchParams(fields);
    const answer = await fetch(hub, { method: 'POST', body, headers });
    const text = (await answer.text()).trim();
    published.className = answer.ok ? 'small good' : 'small bad';
    if (answer.ok) {
      const id = element('code', { title: text }, shortId(text));
      published.replaceChildren(
        'Published ',
        id,
        ' ',
        copyButton('Copy id', () => text, id),
      );
      showCode({ kind: 'publish', url: hub, fields, hasToken });
      list.published(text, topics);
      return;
    }
    const advice = grantAdvice(answer.status, { use: 'publish', topics }, hasToken, settings);
    published.replaceChildren(`Refused: ${answer.status} ${text}.`, ...advice);
  } catch (error) {
    published.textContent = error instanceof Error ? error.message : String(error);
    published.className = 'small bad';
  }
}

function textOf(form: HTMLFormElement, name: string): string {
  const value = new FormData(form).get(name);
  return typeof value === 'string' ? value : '';
}

const OFF = 'hubgate-debugger-shortcuts-off';

/**
 * Handles single keys when no field has the focus. They can be switched off (WCAG 2.2 §2.1.4), which is the
 * only setting that the page stores.
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

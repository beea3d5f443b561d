// The page at HUB/debug/. The token stays in its field: it is sent to this hub and nowhere else, is
// not stored, and is explained here, by the code of `token inspect`.
import type { MatcherSpec } from '../hub/matcher.ts';
import { enableCopying, showCode } from './as-code.ts';
import { element, find, linesOf } from './element.ts';
import type { DebuggerSettings } from './token.ts';
import { follow, isGap, type StreamState } from './stream.ts';
import { Subscribers } from './subscribers.ts';
import { explain } from './token-panel.ts';
import { Traffic } from './traffic.ts';
import { UpdateList } from './update-list.ts';

/** How long typing must rest before the token is explained again, in milliseconds. */
const TYPING_MS = 150;
/** How often the token is explained again without: it expires. */
const EXPLAIN_EVERY_MS = 30_000;

const hub = new URL('..', location.href).href.replace(/\/$/, '');
const settings = (await (await fetch('config.json')).json()) as DebuggerSettings;
const tokenField = find('token', HTMLInputElement);
const subscribeForm = find('subscribe', HTMLFormElement);
const publishForm = find('publish', HTMLFormElement);
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
  settings.anonymous ? ' · lets anonymous subscribers in' : ' · subscribers need a token',
  settings.subscriptions ? ' · tells who is subscribed' : '',
);
find('who', HTMLElement).hidden = !settings.subscriptions;
find('teach-token', HTMLElement).hidden = settings.playground;
find('teach-command', HTMLElement).textContent =
  `hubgate token --iss ISSUER --key @KEYFILE --aud ${settings.audience} --detail-type ${settings.detailType} --subscribe '*' --publish '*'`;
enableCopying();
await fillIn();
explainNow();
if (settings.subscriptions && token() !== '') void subscribers.refresh();

let typing: ReturnType<typeof setTimeout> | undefined;
document.addEventListener('input', ({ target }) => {
  if (!(target instanceof HTMLElement) || target.closest('#controls') === null) return;
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
  t: () => tokenField.focus(),
  n: () => publishForm.querySelector('textarea')?.focus(),
  '/': () => find('filter', HTMLInputElement).focus(),
});

/** The playground gives everybody a token. */
async function fillIn(): Promise<void> {
  const topic = publishForm.querySelector('textarea');
  if (topic !== null && topic.value === '') topic.value = `${location.origin}/hello`;
  if (!settings.playground) return;
  const answer = await fetch('playground-token');
  if (answer.ok) tokenField.value = await answer.text();
}

function explainNow(): void {
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
  showCode({ kind: 'subscribe', url: url.href, cursor, hasToken: token() !== '' });
  const { signal } = running;
  const listener = {
    // What an earlier stream still has to say is not about this one.
    state: (state: StreamState) => signal === running.signal && show(state),
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
  find('stop', HTMLButtonElement).disabled = state.kind === 'closed' || state.kind === 'refused';
  traffic.connected(state.kind === 'open');
  switch (state.kind) {
    case 'connecting':
      stateBadge.textContent =
        state.attempt === 1 ? 'connecting…' : `connecting, try ${state.attempt}…`;
      return;
    case 'open':
      stateBadge.textContent = 'open';
      opened(state);
      if (settings.subscriptions) void subscribers.refresh();
      wasOpen = true;
      return;
    case 'waiting': {
      const seconds = (state.milliseconds / 1000).toFixed(1);
      stateBadge.textContent = `lost, again in ${seconds} s`;
      list.notice(`Connection lost: ${state.why}. Trying again in ${seconds} s.`, 'warn');
      return;
    }
    case 'refused':
      stateBadge.textContent = `refused: ${state.why}`;
      list.notice(`The hub refused: ${state.why}`, 'bad');
      return;
    case 'closed':
      stateBadge.textContent = 'closed';
      list.notice('Unsubscribed.', 'muted');
  }
}

function opened({ asked, began }: Extract<StreamState, { kind: 'open' }>): void {
  if (began !== null) showCursor(began);
  const header = began === null ? '' : ` (${settings.cursorHeader}: ${began})`;
  if (isGap(asked, began)) {
    const what = began === 'earliest' ? 'sends all that it still has' : `begins behind ${began}`;
    list.notice(
      `Gap: the history does not reach back to ${asked}. The hub ${what}; updates may be lost.`,
      'bad',
    );
  } else if (asked === null && wasOpen) {
    list.notice('Reconnected without a cursor: what came meanwhile is not seen.', 'warn');
  } else if (asked !== null && asked !== 'earliest') {
    list.notice(`Taken up behind ${asked}: nothing was missed.`, 'good');
  } else list.notice(`Subscribed${header}.`, 'good');
}

function showCursor(id: string): void {
  find('cursor', HTMLElement).textContent = id;
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
  showCode({ kind: 'publish', url: hub, fields, hasToken });
  try {
    const headers = new Headers(hasToken ? { Authorization: `Bearer ${token()}` } : {});
    const body = new URLSearchParams(fields);
    const answer = await fetch(hub, { method: 'POST', body, headers });
    const text = (await answer.text()).trim();
    published.textContent = answer.ok ? `Published ${text}` : `Refused: ${answer.status} ${text}`;
    published.className = answer.ok ? 'good' : 'bad';
    if (answer.ok) list.published(text, topics);
  } catch (error) {
    published.textContent = error instanceof Error ? error.message : String(error);
    published.className = 'bad';
  }
}

function textOf(form: HTMLFormElement, name: string): string {
  const value = new FormData(form).get(name);
  return typeof value === 'string' ? value : '';
}

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

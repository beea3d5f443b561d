// Reads the state, and with it, from the Link header that the gateway adds, where the hub is and
// from which update on to listen: what happens between the two cannot be missed.
const seen = new Set();
let source;
let connects = 0;
/** The name of the user; null for a guest. */
let me = null;

for (const button of document.querySelectorAll('[data-user]')) {
  button.addEventListener('click', () => void become(button.dataset.user));
}
for (const [form, path] of [
  ['say', '/messages'],
  ['whisper', '/whispers'],
]) {
  document.querySelector(`#${form}`).addEventListener('submit', (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    event.target.querySelector('input').value = '';
    void send(path, fields);
  });
}
// Last, so that no click is lost while the state is on its way.
await connect();

async function connect() {
  connects += 1;
  const mine = connects;
  const response = await fetch('/state');
  const { user, messages, site, debuggerLink } = await response.json();
  // Someone signed in or out in the meantime: this answer is out of date.
  if (mine !== connects) return;
  const { hub, lastEventId } = hubLink(response.headers.get('Link'));
  showUser(user, debuggerLink);
  for (const message of messages) show(message);

  const url = new URL(hub, location.href);
  url.searchParams.append('match_urlpattern', `${site}/messages/*`);
  url.searchParams.append('match_urlpattern', `${site}/users/*`);
  url.searchParams.set('last_event_id', lastEventId);
  source?.close();
  source = new EventSource(url, { withCredentials: true });
  source.onopen = () => setStatus('open', 'live');
  source.onmessage = ({ data }) => show(JSON.parse(data));
  source.onerror = () => {
    setStatus('connecting', 'reconnecting…');
    // Closed means that the hub refused, for instance an expired token: a new page state brings a new one.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => void connect(), 1000);
  };
}

function hubLink(header) {
  const link = header.split(/,(?=\s*<)/).find((one) => /;\s*rel="hub"/.test(one));
  return {
    hub: /<([^>]*)>/.exec(link)[1],
    lastEventId: /last-event-id="((?:[^"\\]|\\.)*)"/.exec(link)[1].replace(/\\(.)/g, '$1'),
  };
}

function showUser(user, debuggerLink) {
  me = user;
  document.querySelector('#user').textContent = user ?? 'a guest';
  for (const button of document.querySelectorAll('[data-user]')) {
    const isMe = button.dataset.user === user;
    button.setAttribute('aria-pressed', String(isMe));
    // A guest has nothing to sign out of.
    if (button.dataset.user === '') button.disabled = user === null;
  }
  for (const item of document.querySelectorAll('#messages li')) markMine(item);
  const inside = document.querySelector('#debugger');
  inside.hidden = !debuggerLink;
  if (debuggerLink) inside.href = debuggerLink;
}

function show({ id, from, text, to }) {
  if (seen.has(id)) return;
  seen.add(id);
  const item = document.createElement('li');
  const author = document.createElement('b');
  author.textContent = from ?? 'a guest';
  const isWhisper = id.includes('/whispers/');
  item.append(author, isWhisper && from === me ? ` to ${to}: ${text}` : `: ${text}`);
  item.classList.toggle('whisper', isWhisper);
  document.querySelector('#messages').append(item);
  markMine(item);
}

function markMine(item) {
  const author = item.querySelector('b');
  item.classList.toggle('mine', me !== null && author.textContent === me);
}

/** Your own whisper goes to the other alone: the hub does not send it to you, so the answer is shown. */
async function send(path, fields) {
  const answer = await post(path, fields);
  if (answer.ok) show(await answer.json());
}

function setStatus(state, text) {
  const status = document.querySelector('#status');
  status.dataset.state = state;
  status.textContent = text;
}

async function become(user) {
  if (user) await post('/login', { user });
  else await post('/logout', {});
  await connect();
}

function post(path, value) {
  return fetch(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(value),
  });
}

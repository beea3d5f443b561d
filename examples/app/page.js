// Reads the state, and with it, from the Link header that the gateway adds, where the hub is and
// from which update on to listen: what happens between the two cannot be missed.
const seen = new Set();
let source;
let connects = 0;

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
    void post(path, fields);
  });
}
// Last, so that no click is lost while the state is on its way.
await connect();

async function connect() {
  connects += 1;
  const mine = connects;
  const response = await fetch('/state');
  const { user, messages, site } = await response.json();
  // Somebody logged in or out meanwhile: what this answer says is out of date.
  if (mine !== connects) return;
  const { hub, lastEventId } = hubLink(response.headers.get('Link'));
  document.querySelector('#user').textContent = user ?? 'nobody';
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

function show({ id, from, text }) {
  if (seen.has(id)) return;
  seen.add(id);
  const item = document.createElement('li');
  item.textContent = `${from}: ${text}`;
  if (id.includes('/whispers/')) item.className = 'whisper';
  document.querySelector('#messages').append(item);
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

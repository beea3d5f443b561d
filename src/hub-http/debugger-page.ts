/** The files of the debugger's page. No script or style comes from elsewhere, so the CSP stays `'self'`. */
export const DEBUGGER_HTML = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Hub debugger</title>
    <link rel="stylesheet" href="debugger.css" />
    <script type="module" src="debugger.js"></script>
  </head>
  <body>
    <h1>Hub debugger</h1>
    <p id="about"></p>
    <label>Access token <input id="token" autocomplete="off" placeholder="none: anonymous, or the cookie" /></label>
    <form id="subscribe">
      <h2>Subscribe</h2>
      <label>Topics, one a line <textarea name="match" rows="2">*</textarea></label>
      <label>URL Patterns, one a line <textarea name="match_urlpattern" rows="2"></textarea></label>
      <label>Last event id <input name="last_event_id" placeholder="earliest" /></label>
      <button>Subscribe</button> <button type="button" id="stop">Stop</button>
      <output id="state">closed</output>
    </form>
    <ol id="events"></ol>
    <form id="publish">
      <h2>Publish</h2>
      <label>Topics, one a line <textarea name="topic" rows="2" required></textarea></label>
      <label>Data <textarea name="data" rows="3"></textarea></label>
      <label>Id <input name="id" /></label>
      <label>Type <input name="type" /></label>
      <label><input type="checkbox" name="private" /> private</label>
      <button>Publish</button>
      <output id="published"></output>
    </form>
  </body>
</html>
`;

export const DEBUGGER_CSS = `body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
label { display: block; margin: 0.5rem 0; }
input:not([type='checkbox']), textarea { width: 100%; box-sizing: border-box; font: inherit; }
li { overflow-wrap: anywhere; white-space: pre-wrap; border-top: 1px solid #ccc; }
`;

export const DEBUGGER_JS = `const hub = new URL('..', location.href.replace(/\\/$/, '/')).href.replace(/\\/$/, '');
const $ = (selector) => document.querySelector(selector);
const config = await (await fetch('config.json')).json();
$('#about').textContent = [
  hub,
  config.anonymous ? 'anonymous subscribers allowed' : 'a token is needed',
  config.subscriptions ? 'subscriptions are told' : '',
  'cookie ' + config.cookieName,
].filter(Boolean).join(' · ');
if (config.playground) {
  const answer = await fetch('playground-token');
  if (answer.ok) $('#token').value = await answer.text();
}

let abort = new AbortController();
$('#subscribe').addEventListener('submit', (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const url = new URL(hub);
  for (const name of ['match', 'match_urlpattern']) {
    for (const value of lines(form.get(name))) url.searchParams.append(name, value);
  }
  if (form.get('last_event_id')) url.searchParams.set('last_event_id', form.get('last_event_id'));
  void follow(url);
});
$('#stop').addEventListener('click', () => abort.abort());
$('#publish').addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const body = new URLSearchParams();
  for (const topic of lines(form.get('topic'))) body.append('topic', topic);
  for (const name of ['data', 'id', 'type']) if (form.get(name)) body.set(name, form.get(name));
  if (form.get('private')) body.set('private', 'on');
  const answer = await fetch(hub, { method: 'POST', body, headers: authorization() });
  $('#published').textContent = answer.status + ' ' + (await answer.text());
});

// Not an EventSource: that cannot send the token of the field above.
async function follow(url) {
  abort.abort();
  abort = new AbortController();
  $('#events').replaceChildren();
  try {
    const answer = await fetch(url, { headers: authorization(), signal: abort.signal });
    if (!answer.ok) throw new Error(answer.status + ' ' + (await answer.text()));
    $('#state').textContent = 'open';
    let text = '';
    for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const events = text.split('\\n\\n');
      text = events.pop();
      for (const one of events) show(one.replace(/^:\\n/gm, ''));
    }
    $('#state').textContent = 'ended by the hub';
  } catch (error) {
    $('#state').textContent = error.name === 'AbortError' ? 'closed' : error.message;
  }
}

function show(event) {
  if (event === '') return;
  const item = document.createElement('li');
  item.textContent = event;
  $('#events').prepend(item);
}

function authorization() {
  const token = $('#token').value.trim();
  return token === '' ? {} : { Authorization: 'Bearer ' + token };
}

function lines(text) {
  return text.split('\\n').map((line) => line.trim()).filter(Boolean);
}
`;

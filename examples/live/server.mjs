// A message board as it was in 2005: it renders HTML and takes forms. It has no script, no library,
// no key, and has never heard of a hub. Put behind hubgate with the Hubfile beside it, it is live.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const PORT = Number(process.env.PORT ?? 3000);
const MAX_MESSAGES = 100;
const MAX_BYTES = 10_000;
/** Characters of a name. */
const MAX_NAME = 40;
const design = readFileSync(new URL('../design.css', import.meta.url));
const icon = readFileSync(new URL('../icon.svg', import.meta.url));
const messages = [{ from: 'the board', text: 'Welcome.' }];

const server = createServer((request, response) => {
  answer(request, response).catch(() => response.destroy());
});
server.listen(PORT, '127.0.0.1', () =>
  console.error(`board: http://127.0.0.1:${server.address().port}`),
);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(0));

async function answer(request, response) {
  if (request.method === 'POST') {
    const form = new URLSearchParams(await read(request));
    const from = (form.get('from') ?? '').slice(0, MAX_NAME);
    messages.push({ from: from || 'a guest', text: form.get('text') || '…' });
    messages.splice(0, messages.length - MAX_MESSAGES);
    const cookie = `name=${encodeURIComponent(from)}; Path=/; HttpOnly; SameSite=Lax`;
    response.writeHead(303, { Location: request.url, 'Set-Cookie': cookie }).end();
    return;
  }
  if (request.url === '/design.css') {
    response.writeHead(200, { 'Content-Type': 'text/css' }).end(design);
    return;
  }
  if (request.url === '/icon.svg') {
    response.writeHead(200, { 'Content-Type': 'image/svg+xml' }).end(icon);
    return;
  }
  const name = nameOf(request);
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(page(name));
}

/** The name that this browser posted under last. */
function nameOf(request) {
  const value = /(?:^|;\s*)name=([^;]*)/.exec(request.headers.cookie ?? '')?.[1] ?? '';
  try {
    return decodeURIComponent(value);
  } catch {
    // Not a cookie of this board.
    return '';
  }
}

function page(name) {
  const items = messages.map(({ from, text }) => {
    const you = name !== '' && from === name ? ' (you)' : '';
    return `<li><b>${escape(from)}${you}</b>: ${escape(text)}</li>`;
  });
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Board (${messages.length})</title>
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <link rel="icon" type="image/svg+xml" href="/icon.svg">
    <link rel="stylesheet" href="/design.css">
    <style>main { max-width: 40rem; } ul { list-style: none; padding: 0; } form { margin-bottom: var(--gap); } li { border-bottom: 1px solid var(--line); padding: var(--gap-s) 0; }</style>
  </head>
  <body>
    <main>
      <h1><img src="/icon.svg" alt="">Board</h1>
      <p class="muted">Open this page in two windows: what you write in one appears in the other.</p>
      <ul>${items.join('\n')}</ul>
      <form method="post" class="card">
        <label>Your name <input name="from" maxlength="${MAX_NAME}" value="${escape(name)}"></label>
        <label>Message <input name="text" placeholder="write to everyone" required autocomplete="off"></label>
        <button class="primary">Say</button>
      </form>
      <p class="small muted">The app sends plain HTML. The gateway has added one script, which follows the hub.</p>
    </main>
  </body>
</html>`;
}

async function read(request) {
  let text = '';
  for await (const chunk of request) {
    text += chunk;
    if (text.length > MAX_BYTES) throw new Error('too large');
  }
  return text;
}

function escape(text) {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

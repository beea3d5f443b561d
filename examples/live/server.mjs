// A message board as it was in 2005: it renders HTML and takes forms. It has no script, no library,
// no key, and has never heard of a hub. Put behind hubgate with the Hubfile beside it, it is live.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const PORT = Number(process.env.PORT ?? 3000);
const MAX_MESSAGES = 100;
const MAX_BYTES = 10_000;
const design = readFileSync(new URL('../design.css', import.meta.url));
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
    messages.push({ from: form.get('from') || 'a guest', text: form.get('text') || '…' });
    messages.splice(0, messages.length - MAX_MESSAGES);
    response.writeHead(303, { Location: request.url }).end();
    return;
  }
  if (request.url === '/design.css') {
    response.writeHead(200, { 'Content-Type': 'text/css' }).end(design);
    return;
  }
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(page());
}

function page() {
  const items = messages.map(
    ({ from, text }) => `<li><b>${escape(from)}</b>: ${escape(text)}</li>`,
  );
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Board (${messages.length})</title>
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <link rel="stylesheet" href="/design.css">
  </head>
  <body>
    <main>
      <h1>Board</h1>
      <p class="muted">Open this page twice. It has not one line of JavaScript of its own.</p>
      <ul>${items.join('\n')}</ul>
      <form method="post" class="card">
        <label>Your name <input name="from"></label>
        <label>Message <input name="text" placeholder="say something" required></label>
        <button class="primary">Say</button>
      </form>
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

// Serves a single-page app, its state, and a token to whoever has a session. The page imports the
// client from the hub.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { signToken } from 'hubgate';

const { APP_PORT = '3000', PORT = '8080' } = process.env;
const HUB = `http://hub.localhost:${PORT}/.well-known/hub`;
const page = readFileSync(new URL('./index.html', import.meta.url), 'utf8').replace('{HUB}', HUB);
const key = process.env.HUB_SUBSCRIBER_JWT_KEY;

createServer((request, response) => {
  switch (request.url) {
    case '/':
      response.setHeader('Content-Type', 'text/html').end(page);
      break;
    case '/api/notes':
      response.setHeader('Content-Type', 'application/json').end('["the first note"]');
      break;
    case '/api/token':
      // Here the app looks at its session.
      void token().then((text) => response.end(text));
      break;
    default:
      response.writeHead(404).end();
  }
}).listen(Number(APP_PORT), 'localhost', () => console.error('app: listening'));

function token() {
  return signToken({
    iss: `http://spa.localhost:${PORT}`,
    aud: HUB,
    key,
    subscribe: 'https://example.com/notes',
    ttl: '15m',
  });
}

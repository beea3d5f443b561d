// End-to-end privacy: the publisher encrypts (JWE, RFC 7516), the browser decrypts, and both have the
// key from the app alone, by a link of the relation `key-set`. The hub relays what it cannot read.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { signToken } from 'hubgate';
import { CompactEncrypt, exportJWK, generateSecret } from 'jose';

const PORT = Number(process.env.PORT ?? 3000);
const SITE = process.env.SITE ?? 'https://localhost:8443';
const HUB = `${SITE}/.well-known/hub`;
const TOPIC = `${SITE}/secrets`;
const hubKey = process.env.HUB_PUBLISHER_JWT_KEY;

// Of the app's users only: a real app serves it to those who are logged in.
const contentKey = await generateSecret('A256GCM', { extractable: true });
const keySet = {
  keys: [{ ...(await exportJWK(contentKey)), alg: 'dir', enc: 'A256GCM', use: 'enc', kid: '1' }],
};

const files = {
  '/': ['text/html; charset=utf-8', readFileSync(new URL('./page.html', import.meta.url))],
  '/page.js': ['text/javascript', readFileSync(new URL('./page.js', import.meta.url))],
  '/design.css': ['text/css', readFileSync(new URL('../design.css', import.meta.url))],
  '/key-set': ['application/jwk-set+json', JSON.stringify(keySet)],
};

const server = createServer((request, response) => void route(request, response));
server.listen(PORT, '127.0.0.1', () => console.error(`app: http://127.0.0.1:${PORT}`));

async function route(request, response) {
  const { pathname, searchParams } = new URL(request.url, SITE);
  if (request.method === 'POST' && pathname === '/say') {
    const status = await publish(searchParams.get('text') ?? '');
    response.writeHead(status === 200 ? 204 : 502).end();
    return;
  }
  const [type, content] = files[pathname] ?? [];
  if (type === undefined) {
    response.writeHead(404).end();
    return;
  }
  response.setHeader('Content-Type', type);
  response.setHeader('Link', '</key-set>; rel="key-set"');
  response.end(content);
}

async function publish(text) {
  const data = await new CompactEncrypt(new TextEncoder().encode(text))
    .setProtectedHeader({ alg: 'dir', enc: 'A256GCM', kid: '1' })
    .encrypt(contentKey);
  const token = await signToken({ iss: SITE, aud: HUB, key: hubKey, publish: TOPIC, ttl: '1m' });
  const answer = await fetch(HUB, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body: new URLSearchParams({ topic: TOPIC, data }),
  });
  return answer.status;
}

// A message board that knows two things of the hub: it names its logged-in user to the gateway by a
// signed token in the `Hub-Access-Token` response header, and it POSTs updates to the hub.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { signToken } from 'hubgate';

const PORT = Number(process.env.PORT ?? 3000);
const SITE = process.env.SITE ?? 'https://localhost:8443';
const HUB = `${SITE}/.well-known/hub`;
const publisherKey = secret('HUB_PUBLISHER_JWT_KEY');
const subscriberKey = secret('HUB_SUBSCRIBER_JWT_KEY');
const page = readFileSync(new URL('./page.html', import.meta.url));
const script = readFileSync(new URL('./page.js', import.meta.url));
const styles = {
  '/page.css': readFileSync(new URL('./page.css', import.meta.url)),
  '/design.css': readFileSync(new URL('../design.css', import.meta.url)),
};
const icon = readFileSync(new URL('../icon.svg', import.meta.url));

const users = ['alice', 'bob'];
/** Session id → user. */
const sessions = new Map();
/** Newest last; what is published reaches the pages by the hub. */
const messages = [{ id: `${SITE}/messages/0`, from: 'the board', text: 'Welcome.' }];

const server = createServer((request, response) => {
  route(request, response).catch((error) => {
    console.error(`app: ${error.message}`);
    if (!response.headersSent) response.writeHead(500).end();
  });
});
server.listen(PORT, '127.0.0.1', () =>
  console.error(`app: http://127.0.0.1:${server.address().port}`),
);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(0));

async function route(request, response) {
  const session = /(?:^|;\s*)session=([^;]+)/.exec(request.headers.cookie ?? '')?.[1];
  const user = sessions.get(session);
  if (user !== undefined) response.setHeader('Hub-Access-Token', await subscriberToken(user));
  // Node leaves the body out of answers to HEAD by itself.
  const method = request.method === 'HEAD' ? 'GET' : request.method;
  switch (`${method} ${new URL(request.url, SITE).pathname}`) {
    case 'GET /':
      response.setHeader('Content-Type', 'text/html; charset=utf-8').end(page);
      return;
    case 'GET /page.js':
      response.setHeader('Content-Type', 'text/javascript').end(script);
      return;
    case 'GET /page.css':
    case 'GET /design.css':
      response.setHeader('Content-Type', 'text/css').end(styles[request.url]);
      return;
    case 'GET /icon.svg':
      response.setHeader('Content-Type', 'image/svg+xml').end(icon);
      return;
    case 'GET /state':
      json(response, {
        user: user ?? null,
        users,
        messages,
        site: SITE,
        debuggerLink: debuggerLink(request),
      });
      return;
    case 'POST /login':
      await login(request, response);
      return;
    case 'POST /logout':
      sessions.delete(session);
      response.setHeader('Set-Cookie', 'session=; Path=/; Max-Age=0');
      // An empty token tells the gateway to take its cookie away.
      response.setHeader('Hub-Access-Token', '');
      json(response, {});
      return;
    case 'POST /messages': {
      const { text } = await body(request);
      const message = { id: `${SITE}/messages/${randomUUID()}`, from: user ?? 'a guest', text };
      messages.push(message);
      await publish(message.id, message, false);
      json(response, message);
      return;
    }
    case 'POST /whispers': {
      const { to, text } = await body(request);
      const id = `${SITE}/users/${to}/whispers/${randomUUID()}`;
      const whisper = { id, from: user ?? 'a guest', text, to };
      await publish(whisper.id, whisper, true);
      json(response, whisper);
      return;
    }
    default:
      response.writeHead(404).end('not found\n');
  }
}

/** `npm start` makes a token that may do everything; only a browser on this machine gets it. */
function debuggerLink({ headers }) {
  const token = process.env.HUB_DEMO_TOKEN;
  const client = headers['x-forwarded-for'];
  if (!token || (client !== '127.0.0.1' && client !== '::1')) return null;
  return `${HUB}/debug/#token=${token}`;
}

async function login(request, response) {
  const { user } = await body(request);
  if (!users.includes(user)) {
    response.writeHead(400).end('unknown user\n');
    return;
  }
  const session = randomUUID();
  sessions.set(session, user);
  response.setHeader('Set-Cookie', `session=${session}; Path=/; HttpOnly; Secure; SameSite=Lax`);
  response.setHeader('Hub-Access-Token', await subscriberToken(user));
  json(response, { user });
}

/** What this user may read: private updates below its own path. */
function subscriberToken(user) {
  return signToken({
    iss: SITE,
    aud: HUB,
    key: subscriberKey,
    sub: user,
    subscribe: { urlpattern: `${SITE}/users/${user}/*` },
  });
}

async function publish(topic, data, isPrivate) {
  const form = new URLSearchParams({ topic, data: JSON.stringify(data) });
  if (isPrivate) form.set('private', 'on');
  const token = await signToken({
    iss: SITE,
    aud: HUB,
    key: publisherKey,
    publish: { urlpattern: `${SITE}/*` },
  });
  const answer = await fetch(HUB, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body: form,
  });
  if (!answer.ok) throw new Error(`the hub answered ${answer.status}`);
}

function secret(name) {
  const value = process.env[name];
  if (value) return value;
  console.error(`app: set ${name} to the key that the Hubfile uses`);
  process.exit(1);
}

function json(response, value) {
  response.setHeader('Content-Type', 'application/json').end(JSON.stringify(value));
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

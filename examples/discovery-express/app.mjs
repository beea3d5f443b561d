/* oxlint-disable oxc/no-async-endpoint-handlers -- Express 5 hears of what they reject with */
// An Express app behind the gateway. Two things in it are there for the hub: the response header
// that carries the user's token, and the POST that publishes.
import { randomUUID } from 'node:crypto';
import express from 'express';
import { signToken } from 'hubgate';

const { APP_PORT = '3000', SITE = 'http://localhost:8080' } = process.env;
const HUB = `${SITE}/.well-known/hub`;
/** Session id → user. */
const sessions = new Map();
const orders = new Map();

const app = express();
app.use(express.json());

app.use(async (request, response, next) => {
  request.session = /(?:^|;\s*)session=([^;]+)/.exec(request.headers.cookie ?? '')?.[1];
  request.user = sessions.get(request.session);
  if (request.user !== undefined) {
    response.set('Hub-Access-Token', await token('subscribe', `${SITE}/users/${request.user}/*`));
    // The page belongs to this user. With `private`, even a 304 that Express sends for an ETag may carry
    // the token, because no shared cache keeps the page.
    response.set('Cache-Control', 'private');
  }
  next();
});

app.post('/login', async (request, response) => {
  const session = randomUUID();
  sessions.set(session, request.body.user);
  response.cookie('session', session, { httpOnly: true, sameSite: 'lax' });
  response.json({});
});

app.post('/logout', (request, response) => {
  sessions.delete(request.session);
  response.clearCookie('session');
  // If it is empty, the gateway deletes its cookie and ends the streams of this browser.
  response.set('Hub-Access-Token', '');
  response.json({});
});

app.get('/orders', (request, response) => {
  response.json(orders.get(request.user) ?? []);
});

app.post('/orders', async (request, response) => {
  const order = { id: `${SITE}/users/${request.user}/orders/${randomUUID()}`, ...request.body };
  orders.set(request.user, [...(orders.get(request.user) ?? []), order]);
  const answer = await fetch(HUB, {
    method: 'POST',
    headers: { authorization: `Bearer ${await token('publish', `${SITE}/users/*`)}` },
    body: new URLSearchParams({ topic: order.id, data: JSON.stringify(order), private: 'on' }),
  });
  response.status(answer.ok ? 201 : 502).json(order);
});

app.listen(Number(APP_PORT), 'localhost', (error) => {
  if (error !== undefined) throw error;
  console.error('app: listening');
});

function token(action, urlpattern) {
  const name = action === 'publish' ? 'HUB_PUBLISHER_JWT_KEY' : 'HUB_SUBSCRIBER_JWT_KEY';
  const key = process.env[name];
  return signToken({ iss: SITE, aud: HUB, key, [action]: { urlpattern }, ttl: '15m' });
}

import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSource } from 'eventsource';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { type CuttingProxy, startCuttingProxy } from '../support/cutting-proxy.ts';
import {
  ISSUER,
  signToken,
  startHub,
  SUBSCRIBER_KEY,
  type TestHub,
} from '../support/hub-server.ts';

const IDENTITY = 'https://hub.example/.well-known/hub';

interface Received {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** What a client has received, and a way to wait for it. */
class Inbox {
  readonly events: Received[] = [];
  readonly #arrivals = new EventEmitter();

  readonly add = (event: Received): void => {
    this.events.push(event);
    this.#arrivals.emit('event');
  };

  async untilId(id: string): Promise<readonly Received[]> {
    while (!this.events.some((event) => event.id === id)) await once(this.#arrivals, 'event');
    return this.events;
  }
}

interface Place {
  readonly hub: TestHub;
  readonly proxy: CuttingProxy;
  /** URL of a subscription to `urn:news`, through the proxy. */
  readonly url: string;
  /** A token that may read everything. */
  readonly token: string;
}

/** A hub for subscribers with tokens, behind a line that can be cut. */
async function startPlace(test: TestContext): Promise<Place> {
  const hub = await startHub(test, {
    anonymous: false,
    resourceIdentifier: IDENTITY,
    cookieName: 'hub_access_token',
  });
  const proxy = await startCuttingProxy(test, hub.origin);
  const [, value] = await hub.subscriber('*');
  const url = `${proxy.origin}/.well-known/hub?match=urn:news`;
  return { hub, proxy, url, token: value.slice('Bearer '.length) };
}

/** Publishes, cuts the line and goes on publishing; the client must miss and double nothing. */
async function loseTheLine({ hub, proxy }: Place, inbox: Inbox): Promise<void> {
  const post = async (id: string, more = {}): Promise<void> => {
    const { status } = await hub.post({ topic: 'urn:news', private: 'on', id, ...more });
    assert.equal(status, 200);
  };
  await post('1', { data: 'several\nlines\nand \u2603', retry: '10' });
  await inbox.untilId('1');
  const before = proxy.opened;
  proxy.cut();
  await post('2', { type: 'message' });
  await post('3');
  await inbox.untilId('3');
  proxy.cut();
  await post('4');
  await inbox.untilId('4');
  assert.ok(proxy.opened >= before + 2);
  assert.deepEqual(
    inbox.events.map(({ id }) => id),
    ['1', '2', '3', '4'],
  );
  assert.equal(inbox.events[0]?.data, 'several\nlines\nand \u2603');
}

describe('third-party clients', () => {
  it('npm eventsource: connects with a token, receives, resumes after a lost connection', async (test) => {
    const place = await startPlace(test);
    const inbox = new Inbox();
    const source = new EventSource(place.url, {
      fetch: (input, init) => {
        const headers = { ...init.headers, authorization: `Bearer ${place.token}` };
        return fetch(input, { ...init, headers });
      },
    });
    test.after(() => source.close());
    source.addEventListener('message', ({ lastEventId: id, type, data }) =>
      inbox.add({ id, type, data }),
    );
    await new Promise<void>((resolve) => {
      source.addEventListener('open', () => resolve(), { once: true });
    });
    await loseTheLine(place, inbox);
  });

  it('npm eventsource: gives up when its token is rejected', async (test) => {
    const { url } = await startPlace(test);
    const source = new EventSource(url);
    test.after(() => source.close());
    const code = await new Promise((resolve) => {
      source.addEventListener('error', (error) => resolve(error.code));
    });
    assert.equal(code, 401);
    assert.equal(source.readyState, source.CLOSED);
  });

  it('npm @microsoft/fetch-event-source: connects with a token, receives, resumes after a lost connection', async (test) => {
    withBrowserGlobals(test);
    const place = await startPlace(test);
    const inbox = new Inbox();
    const abort = new AbortController();
    const ended = new Promise<void>((resolve, reject) => {
      fetchEventSource(place.url, {
        headers: { authorization: `Bearer ${place.token}` },
        signal: abort.signal,
        openWhenHidden: true,
        fetch,
        onopen: async () => loseTheLineOnce(),
        onmessage: ({ id, event, data }) => {
          // It reports comments and retry fields as messages without id.
          if (id !== '') inbox.add({ id, type: event, data });
        },
      }).then(resolve, reject);
    });
    let running: Promise<void> | undefined;
    const loseTheLineOnce = (): void => {
      running ??= loseTheLine(place, inbox).finally(() => abort.abort());
    };
    await ended;
    await running;
    assert.equal(inbox.events.length, 4);
  });

  it('Chromium’s EventSource: connects with a cookie, receives, resumes after a lost connection', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const place = await startPlace(test);
    const browser = await launchChromium(test, executable, null);
    const context = await browser.newContext();
    const { origin } = place.proxy;
    const cookie = { name: 'hub_access_token', value: place.token, url: origin };
    await context.addCookies([{ ...cookie, httpOnly: true, sameSite: 'Strict' }]);
    const page = await context.newPage();
    await page.goto(origin);
    const inbox = new Inbox();
    await page.exposeFunction('received', inbox.add);
    await page.evaluate(`(${SUBSCRIBE})(${JSON.stringify(place.url)})`);
    await loseTheLine(place, inbox);
  });

  it('Chromium’s fetch, as a conformance suite uses it (K-608)', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const hub = await startHub(test);
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    await page.goto(hub.origin);
    const inbox = new Inbox();
    await page.exposeFunction('received', inbox.add);
    await page.evaluate(`(${SUBSCRIBE})(${JSON.stringify(`${hub.url}?match=urn:b`)})`);
    const [, authorization] = await hub.publisher();
    const publish = (...fields: [string, string][]) =>
      page.evaluate(publishInPage, { url: hub.url, authorization, fields });

    const topics: [string, string][] = [
      ['topic', 'urn:a'],
      ['topic', 'urn:b'],
    ];
    const hidden = await publish(...topics, ['private', 'on'], ['id', 'urn:hidden']);
    assert.equal(hidden.body, 'urn:hidden');
    const data = 'several\nlines\r\nand\rends\n';
    const answer = await publish(...topics, ['data', data]);
    assert.equal(answer.status, 200);
    assert.match(answer.type, /^text\/plain/);
    assert.match(answer.body, /^urn:uuid:/);
    const [first, ...others] = await inbox.untilId(answer.body);
    assert.deepEqual(others, []);
    assert.equal(first?.data, 'several\nlines\nand\nends\n');
  });
});

it('resume with a new token after a stream that ended with its token (seed §3)', async (test) => {
  const place = await startPlace(test);
  const inbox = new Inbox();
  const tokens: string[] = [];
  const source = new EventSource(place.url, {
    fetch: async (input, init) => {
      const token = await shortToken();
      tokens.push(token);
      const headers = { ...init.headers, authorization: `Bearer ${token}` };
      return fetch(input, { ...init, headers });
    },
  });
  test.after(() => source.close());
  source.addEventListener('message', ({ lastEventId: id, type, data }) =>
    inbox.add({ id, type, data }),
  );
  await once(source, 'open');
  await place.hub.post({ topic: 'urn:news', id: '1', retry: '10' });
  await inbox.untilId('1');
  // The hub ends the stream before the token's second is over; the client comes back by itself.
  await once(source, 'open');
  await place.hub.post({ topic: 'urn:news', id: '2' });
  await inbox.untilId('2');
  assert.ok(tokens.length >= 2);
  assert.equal(new Set(inbox.events.map(({ id }) => id)).size, inbox.events.length);
});

function shortToken(): Promise<string> {
  const exp = Math.floor(Date.now() / 1000) + 2;
  return signToken(SUBSCRIBER_KEY, { iss: ISSUER, aud: IDENTITY, exp, authorization_details: [] });
}

/** Opens the page's own EventSource and hands what it receives to the inbox. */
const SUBSCRIBE = `(url) => new Promise((resolve) => {
  const source = new EventSource(url);
  source.onmessage = ({ lastEventId: id, type, data }) => received({ id, type, data });
  source.onopen = resolve;
})`;

/** Runs in the page. */
async function publishInPage(request: {
  readonly url: string;
  readonly authorization: string;
  readonly fields: [string, string][];
}): Promise<{ readonly status: number; readonly type: string; readonly body: string }> {
  const response = await fetch(request.url, {
    method: 'POST',
    headers: { authorization: request.authorization },
    body: new URLSearchParams(request.fields),
  });
  return {
    status: response.status,
    type: response.headers.get('content-type') ?? '',
    body: await response.text(),
  };
}

/** The two globals of a browser that the package uses, for as long as the test runs. */
function withBrowserGlobals(test: TestContext): void {
  Object.assign(globalThis, {
    window: { setTimeout, clearTimeout },
    document: { hidden: false, addEventListener() {}, removeEventListener() {} },
  });
  test.after(() => {
    for (const name of ['window', 'document']) Reflect.deleteProperty(globalThis, name);
  });
}

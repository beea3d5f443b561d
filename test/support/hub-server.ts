import { randomUUID } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import type { HubOptions, LocalUpdate, MountedHub } from '../../src/hub.ts';
import { createHub } from './installed-package.ts';
import { profiles } from '../../src/hub/profile.ts';
import type { LogFields, Logger } from '../../src/kernel/log.ts';
import { type Answer, openStream, type Owner, type RawRequest, send, type Stream } from './http.ts';
import { startWorkerHub } from './worker-hub.ts';
import { removeWith } from './temporary-directory.ts';

export const ISSUER = 'https://issuer.example';
export const PUBLISHER_KEY = 'publisher-key-0123456789-0123456789-abc';
export const SUBSCRIBER_KEY = 'subscriber-key-0123456789-0123456789-ab';

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

/** A hub on a port of its own, with an issuer whose keys the test has. */
export interface TestHub {
  readonly origin: string;
  readonly url: string;
  readonly hub: Pick<MountedHub, 'close'> & {
    /** Resolves to the id. */
    publish(update: LocalUpdate): Promise<string>;
    lastEventId(): Promise<string>;
  };
  readonly log: readonly LogLine[];
  /** `Authorization` of a token with publish grants, on everything by default. */
  publisher(...topics: MatcherClaim[]): Promise<Header>;
  /** `Authorization` of a token with subscribe grants. */
  subscriber(...topics: MatcherClaim[]): Promise<Header>;
  /** Publishes form text with a token for everything, unless `headers` are given. */
  post(form: string | Buffer | Record<string, string>, options?: RawRequest): Promise<Answer>;
  get(pathAndQuery: string, options?: RawRequest): Promise<Answer>;
  subscribe(query: string, options?: RawRequest): Promise<Stream>;
}

export type Header = readonly [name: string, value: string];
export type MatcherClaim = string | { readonly match: string; readonly match_type?: string };

export const FORM: Header = ['Content-Type', 'application/x-www-form-urlencoded'];

const DEFAULTS: HubOptions = {
  issuers: [{ id: ISSUER, publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } }],
  anonymous: true,
};

/**
 * Starts a hub that ends with the test, or with the file when it is given `{ after }` of node:test.
 * HUBGATE_TEST_WORKERS makes it one of the built program with so many workers, unless a clock is
 * turned, which only this process could do, or the test says why it must be `mounted`.
 */
export async function startHub(
  test: Owner,
  options: Partial<HubOptions> = {},
  { mounted = false }: { readonly mounted?: boolean } = {},
): Promise<TestHub> {
  const workers = Number(process.env['HUBGATE_TEST_WORKERS'] ?? 0);
  return workers > 0 && !mounted && options.clock === undefined
    ? startedHub(test, options, workers)
    : mountedHub(test, options);
}

async function mountedHub(test: Owner, options: Partial<HubOptions>): Promise<TestHub> {
  const log: LogLine[] = [];
  const hub = await createHub({
    ...DEFAULTS,
    log: recorder(log, {}),
    ...(await chosenTransport(test, options)),
    ...options,
  });
  const origin = await listen(test, (request, response) =>
    hub.handle(request, response, () => response.writeHead(404).end('the site')),
  );
  test.after(() => hub.close());
  const control = {
    close: () => hub.close(),
    publish: (update: LocalUpdate) => hub.publish(update),
    lastEventId: async () => hub.lastEventId,
  };
  return hubAt(test, { origin, log: () => log, hub: () => control }, options);
}

async function startedHub(
  test: Owner,
  options: Partial<HubOptions>,
  workers: number,
): Promise<TestHub> {
  const running = await startWorkerHub(test, workers, { ...DEFAULTS, ...options });
  const control = (place: TestHub): TestHub['hub'] => ({
    close: () => running.stop(),
    async publish({ topics, id = '' }) {
      const form = new URLSearchParams({ id });
      for (const topic of topics) form.append('topic', topic);
      return (await place.post(form.toString())).body;
    },
    async lastEventId() {
      const headers = [await place.subscriber('*')];
      const { headers: answered } = await place.get(
        `${new URL(place.url).pathname}/subscriptions`,
        { headers },
      );
      return JSON.parse(answered.etag ?? '""');
    },
  });
  const { origin } = running;
  return hubAt(test, { origin, log: () => running.log, hub: control }, options);
}

interface Started {
  readonly origin: string;
  log(): readonly LogLine[];
  hub(place: TestHub): TestHub['hub'];
}

function hubAt(test: Owner, { origin, log, hub }: Started, options: Partial<HubOptions>): TestHub {
  const profile = profiles[options.profile ?? 'hub'];
  const url = `${origin}${options.path ?? profile.path}`;
  const audience = options.resourceIdentifier ?? url;
  const detailType = options.detailType ?? profile.detailType;
  const bearer = async (key: string, action: string, topics: readonly MatcherClaim[]) => {
    const claims = {
      authorization_details: [{ type: detailType, actions: [action], topics: topics.map(matcher) }],
    };
    const token = await signToken(key, { iss: ISSUER, aud: audience, ...claims });
    return ['Authorization', `Bearer ${token}`] as const;
  };
  const self: TestHub = {
    origin,
    url,
    get hub() {
      return hub(self);
    },
    get log() {
      return log();
    },
    publisher: (...topics) =>
      bearer(PUBLISHER_KEY, 'publish', topics.length === 0 ? ['*'] : topics),
    subscriber: (...topics) => bearer(SUBSCRIBER_KEY, 'subscribe', topics),
    async post(form, request = {}) {
      const body =
        typeof form === 'string' || Buffer.isBuffer(form)
          ? form
          : new URLSearchParams(form).toString();
      const headers = request.headers ?? [FORM, await self.publisher()];
      return send(url, { method: 'POST', body, ...request, headers });
    },
    get: (pathAndQuery, request) => send(origin + pathAndQuery, request),
    subscribe: (query, request) => openStream(test, `${url}?${query}`, request),
  };
  return self;
}

/**
 * HUBGATE_TEST_TRANSPORT runs what a test says of a hub on another transport than memory. A clock that
 * is turned would be that of the connection to the store as well, so those stay in memory.
 */
async function chosenTransport(
  test: Owner,
  { clock }: Partial<HubOptions>,
): Promise<Pick<HubOptions, 'history' | 'redis' | 'postgres'>> {
  const chosen = process.env['HUBGATE_TEST_TRANSPORT'] ?? 'memory';
  if (chosen === 'memory' || (chosen !== 'lmdb' && clock !== undefined)) return {};
  if (chosen.startsWith('postgres:')) return { postgres: { url: chosen, stream: randomUUID() } };
  if (chosen !== 'lmdb') return { redis: { urls: [chosen], stream: randomUUID() } };
  const history = await mkdtemp(join(tmpdir(), 'hubgate-protocol-'));
  removeWith(test, history);
  return { history };
}

/** Signs claims as they are, with `exp` an hour from now unless they say otherwise. */
export function signToken(
  key: string | Uint8Array,
  claims: Record<string, unknown>,
  header: Record<string, unknown> = {},
): Promise<string> {
  return new SignJWT({ exp: Math.floor(Date.now() / 1000) + 3600, ...claims })
    .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt', ...header })
    .sign(typeof key === 'string' ? new TextEncoder().encode(key) : key);
}

function matcher(claim: MatcherClaim): object {
  return typeof claim === 'string' ? { match: claim } : claim;
}

async function listen(
  test: Owner,
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<string> {
  const server = createServer({ maxHeaderSize: 100 * 1024 }, handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return `http://127.0.0.1:${address.port}`;
}

/** A logger that keeps its lines. */
export function recorder(lines: Pick<LogLine[], 'push'>, fields: LogFields = {}): Logger {
  const write = (level: string) => (message: string, more?: LogFields) => {
    lines.push({ level, message, fields: { ...fields, ...more } });
  };
  return {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: (more) => recorder(lines, { ...fields, ...more }),
  };
}

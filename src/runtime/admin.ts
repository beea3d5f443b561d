import type { IncomingMessage } from 'node:http';
import type { PurgeOrder } from '../cache/response-caches.ts';
import type { AdminOptions, ListenAddress } from '../config/config.ts';
import { describeProblem, type Problem, problemData } from '../config/problem.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type AdminAnswer, adminRefusal, AdminServer } from './admin-server.ts';
import { healthFault, type StatusReport } from './health.ts';
import type { Family } from '../kernel/measures.ts';
import { METRICS_TYPE, metricsText } from './metrics.ts';
import { parseUrl, readWithin } from '../kernel/parse.ts';
import type { GatewayStatus } from './gateway.ts';
import type { LoadPreview } from './load-preview.ts';

/** A configuration that a client has posted. */
export interface PostedConfig {
  readonly text: Uint8Array;
  readonly language: 'hubfile' | 'yaml' | 'json';
  /** The file with this content; imports are relative to it. null: no file. */
  readonly file: string | null;
}

/** The functions of its process that the admin API calls. */
export interface AdminControls {
  /** The active configuration as data, without secrets. */
  config(): unknown;
  status(): Promise<GatewayStatus>;
  /** Whether the process has begun to stop. */
  draining(): boolean;
  /** The report for a person that watches the gateway. */
  report(): Promise<StatusReport>;
  /** The metrics of all processes. */
  families(): Promise<readonly Family[]>;
  /** The problems of the last load; null if it succeeded. */
  lastError(): readonly Problem[] | null;
  /** Loads a configuration and returns what has changed, or why it is refused. */
  load(posted: PostedConfig): Promise<LoadOutcome>;
  /** Returns what loading it would change, or why it is refused. */
  dryRun(posted: PostedConfig): Promise<LoadOutcome>;
  /** Drops what caches keep, here and on other machines, and says how much that was here. */
  purge(order: PurgeOrder): Promise<number>;
  /** Ends the streams of a token, here and on other machines, and says how many ended here. */
  revoke(tokenId: string): Promise<number>;
  /** Begins to stop the gateway. */
  stop(): void;
}

/** The result of a load or a dry run. */
export interface LoadOutcome {
  /** Errors if it is refused, otherwise warnings. */
  readonly problems: readonly Problem[];
  /** null if it is refused. */
  readonly changes: LoadPreview | null;
}

const MAX_BODY_BYTES = 4 * 1024 * 1024;
const LANGUAGES: Readonly<Record<string, PostedConfig['language']>> = {
  'text/hubfile': 'hubfile',
  'application/json': 'json',
  'application/yaml': 'yaml',
  'application/x-yaml': 'yaml',
  'text/yaml': 'yaml',
};
/** The paths of the reference hub's probes, for a hub with its profile. */
const HEALTH = /^\/(hub|mercure)\/health(?:\/([A-Za-z0-9._~-]{1,64}))?\/(ready|live)\/?$/;

/** The same for the gateway itself, which serves sites even while a hub does not work. */
const GATEWAY_HEALTH = '/health/ready';

interface AdminRequest<Controls = AdminControls> {
  readonly url: URL;
  readonly request: IncomingMessage;
  readonly controls: Controls;
}

type Endpoint<Controls> = (asked: AdminRequest<Controls>) => AdminAnswer | Promise<AdminAnswer>;

type Endpoints<Controls> = Readonly<
  Record<string, { readonly method: 'GET' | 'POST'; readonly answer: Endpoint<Controls> }>
>;

/** The functions for monitoring. */
type Watched = Pick<AdminControls, 'status' | 'families' | 'draining'>;

/** Endpoints that change nothing. */
const READ_ONLY: Endpoints<Watched> = {
  [GATEWAY_HEALTH]: { method: 'GET', answer: ({ controls }) => gatewayHealth(controls) },
  '/metrics': {
    method: 'GET',
    answer: async ({ controls }) => ({
      status: 200,
      type: METRICS_TYPE,
      body: await metricsText(await controls.families()),
    }),
  },
};

const ENDPOINTS: Endpoints<AdminControls> = {
  ...READ_ONLY,
  '/config': {
    method: 'GET',
    answer: ({ controls }) => ({
      status: 200,
      type: 'application/json',
      body: `${JSON.stringify(controls.config(), null, 2)}\n`,
    }),
  },
  '/status': {
    method: 'GET',
    answer: async ({ controls }) => ({ status: 200, body: await controls.report() }),
  },
  '/config/last-error': { method: 'GET', answer: lastError },
  '/load': {
    method: 'POST',
    answer: (asked) => loaded(asked, (posted) => asked.controls.load(posted)),
  },
  '/load/dry-run': {
    method: 'POST',
    answer: (asked) => loaded(asked, (posted) => asked.controls.dryRun(posted)),
  },
  '/stop': {
    method: 'POST',
    answer: ({ controls }) => ({ status: 200, body: {}, after: () => controls.stop() }),
  },
  '/hub/revoke': { method: 'POST', answer: (asked) => notifying(() => revoke(asked)) },
  '/cache/purge': { method: 'POST', answer: (asked) => notifying(() => purge(asked)) },
};

/**
 * Opens the admin API. Any client that reaches it can do everything, so it belongs on a loopback address or a
 * Unix socket. {@link adminRefusal} rejects browsers.
 *
 * @throws HubgateError `listen-failed`
 */
export function openAdmin(
  admin: AdminOptions,
  controls: AdminControls,
  log: Logger,
): Promise<AdminServer> {
  const answer = async (request: IncomingMessage): Promise<AdminAnswer> => {
    const error = adminRefusal(request, admin);
    return error === null ? route(request, ENDPOINTS, controls) : refusal(403, error);
  };
  return AdminServer.open({ option: 'admin', what: 'the admin API', address: admin, log, answer });
}

/**
 * Opens a listener for monitoring: metrics and health, for any client that reaches it.
 *
 * @throws HubgateError `listen-failed`
 */
export function openMetrics(
  address: ListenAddress,
  controls: Watched,
  log: Logger,
): Promise<AdminServer> {
  const answer = (request: IncomingMessage) => route(request, READ_ONLY, controls);
  const what = 'the listener for metrics';
  return AdminServer.open({ option: 'metrics', what, address, log, answer });
}

async function route<Controls extends Watched>(
  request: IncomingMessage,
  endpoints: Endpoints<Controls>,
  controls: Controls,
): Promise<AdminAnswer> {
  const url = parseUrl(request.url ?? '', 'http://admin');
  if (url === null) return refusal(400, 'bad request');
  const method = request.method === 'HEAD' ? 'GET' : request.method;
  const health = HEALTH.exec(url.pathname);
  const endpoint =
    health !== null
      ? ({ method: 'GET', answer: () => healthOf(controls, health) } as const)
      : Object.hasOwn(endpoints, url.pathname)
        ? endpoints[url.pathname]
        : undefined;
  if (endpoint === undefined) return refusal(404, 'not found');
  if (method !== endpoint.method)
    return { ...refusal(405, `use ${endpoint.method}`), allow: endpoint.method };
  return endpoint.answer({ url, request, controls });
}

function lastError({ controls }: AdminRequest): AdminAnswer {
  const problems = controls.lastError();
  if (problems === null) return refusal(404, 'the last load went well');
  return { status: 200, body: problems.map(described) };
}

async function loaded(
  asked: AdminRequest,
  load: (posted: PostedConfig) => Promise<LoadOutcome>,
): Promise<AdminAnswer> {
  const posted = await readPosted(asked);
  if ('status' in posted) return posted;
  const { problems, changes } = await load(posted);
  if (changes === null) return { status: 400, body: problems.map(described) };
  return { status: 200, body: { ...changesData(changes), warnings: problems.map(described) } };
}

/** A preview in the format of the admin API. */
export type PreviewData = ReturnType<typeof changesData>;

function changesData({ historiesLeftBehind, cachesEmptied, listeners, ...rest }: LoadPreview) {
  const { handedOver, ...others } = listeners;
  return {
    ...rest,
    listeners: { ...others, handed_over: handedOver },
    histories_left_behind: historiesLeftBehind,
    caches_emptied: cachesEmptied,
  };
}

async function readPosted({ url, request }: AdminRequest): Promise<PostedConfig | AdminAnswer> {
  const type = request.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  const language = Object.hasOwn(LANGUAGES, type) ? LANGUAGES[type] : undefined;
  if (language === undefined)
    return refusal(415, `use one of ${Object.keys(LANGUAGES).join(', ')}`);
  const text = await readWithin(request, MAX_BODY_BYTES);
  if (text === null) return refusal(413, `at most ${MAX_BODY_BYTES} bytes`);
  return { text, language, file: url.searchParams.get('file') };
}

/** A problem as data and as text for a person, with the line and the caret. */
function described(problem: Problem) {
  return { ...problemData(problem), text: describeProblem(problem) };
}

/** The errors of an order that has not reached everyone. */
const REPEATABLE = ['nodes-not-told', 'order-unconfirmed'];

/** An order for all machines is acknowledged only when they all get it, and all workers have carried it out. */
async function notifying(order: () => Promise<AdminAnswer>): Promise<AdminAnswer> {
  try {
    return await order();
  } catch (error) {
    if (!REPEATABLE.includes(codeOf(error) ?? '')) throw error;
    return { ...refusal(503, messageOf(error)), retryAfter: '1' };
  }
}

async function revoke({ url, controls }: AdminRequest): Promise<AdminAnswer> {
  const tokenId = url.searchParams.get('jti');
  if (!tokenId) return refusal(400, 'the parameter jti is missing');
  return { status: 200, body: { ended: await controls.revoke(tokenId) } };
}

async function purge({ url, controls }: AdminRequest): Promise<AdminAnswer> {
  const orders = [...url.searchParams].flatMap(([name, value]) => orderOf(name, value));
  const [order] = orders;
  if (order === undefined || orders.length > 1) {
    return refusal(400, 'name one of url, tag, pattern and all');
  }
  return { status: 200, body: { purged: await controls.purge(order) } };
}

function orderOf(name: string, value: string): PurgeOrder[] {
  if (name === 'all') return [{ kind: 'all' }];
  if (value === '') return [];
  if (name === 'url' || name === 'tag') return [{ kind: 'name', name: value }];
  return name === 'pattern' ? [{ kind: 'pattern', pattern: value }] : [];
}

async function healthOf(
  controls: Watched,
  [, prefix, name, question]: RegExpExecArray,
): Promise<AdminAnswer> {
  const status = await controls.status();
  const ofProfile = status.hubs.filter(({ profile }) => prefix === 'hub' || profile === prefix);
  if (prefix !== 'hub' && ofProfile.length === 0) return refusal(404, 'not found');
  const hubs = name === undefined ? ofProfile : ofProfile.filter((hub) => hub.name === name);
  if (name !== undefined && hubs.length === 0) return refusal(404, 'not found');
  const fault = await healthFault(question === 'live' ? 'live' : 'ready', {
    ...status,
    hubs,
    draining: controls.draining(),
  });
  if (fault === null) return { status: 200, body: { status: 'ok' } };
  return { status: 503, body: { status: 'error', error: fault } };
}

/**
 * Sites are served while the history of a hub is unavailable, so that is reported as degraded and is not a
 * fault.
 */
async function gatewayHealth(controls: Watched): Promise<AdminAnswer> {
  const status = await controls.status();
  const draining = controls.draining();
  const fault = await healthFault('ready', { ...status, hubs: [], draining });
  if (fault !== null) return { status: 503, body: { status: 'error', error: fault } };
  const degraded = await healthFault('ready', { ...status, draining });
  const body = degraded === null ? { status: 'ok' } : { status: 'degraded', error: degraded };
  return { status: 200, body };
}

function refusal(status: number, error: string): AdminAnswer {
  return { status, body: { error } };
}

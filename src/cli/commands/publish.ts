import type { IncomingMessage } from 'node:http';
import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { argumentValue } from '../new-file.ts';
import { type HubAccess, readText, requestHub } from '../hub-request.ts';
import { type Output, printable } from '../terminal.ts';
import { parseUrl } from '../../kernel/parse.ts';

/** The options of a command that talks to a hub. */
export interface HubFlags {
  readonly hub: string;
  readonly token?: string;
  readonly json?: true;
  readonly cacert?: string;
  readonly insecure?: true;
}

interface PublishFlags extends HubFlags {
  readonly topic: readonly string[];
  readonly data?: string;
  readonly private?: true;
  readonly id?: string;
  readonly type?: string;
  readonly retry?: string;
}

const MAX_ANSWER_BYTES = 64 * 1024;
const TIMEOUT_MS = 30_000;

/** `hubgate publish`: sends one update and prints its id. */
export function publishCommand(output: Output): Command {
  return new Command('publish')
    .description('publish an update to a hub and print its id')
    .requiredOption('--hub <url>', 'URL of the hub')
    .option('--token <token|@file|@->', 'access token')
    .requiredOption('--topic <topic...>', 'topic of the update; the first is the canonical one')
    .option('--data <data|@file|@->', 'content of the update')
    .option('--private', 'only subscribers with a grant receive it')
    .option('--id <id>', 'id of the update (default: the hub creates one)')
    .option('--type <type>', 'event type')
    .option('--retry <ms>', 'reconnection time for subscribers')
    .option('--json', 'print it as JSON')
    .option('--cacert <file>', 'PEM file of an authority to trust')
    .option('--insecure', 'accept any certificate')
    .action(async (flags: PublishFlags) => {
      const form = new URLSearchParams();
      for (const topic of flags.topic) form.append('topic', topic);
      if (flags.data !== undefined) form.append('data', argumentValue(flags.data));
      if (flags.private === true) form.append('private', 'on');
      for (const field of ['id', 'type', 'retry'] as const) {
        const value = flags[field];
        if (value !== undefined) form.append(field, value);
      }
      const access = hubAccess(flags);
      const response = await requestHub(access, {
        method: 'POST',
        url: access.hub,
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: form.toString(),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      const answer = (await readText(response, MAX_ANSWER_BYTES)).trimEnd();
      if (response.statusCode !== 200) throw refusedBy(access, response, answer);
      if (isPage(response)) throw noHub(access, response);
      output.result(printable(flags.json === true ? JSON.stringify({ id: answer }) : answer));
    });
}

/** @throws HubgateError `invalid-argument` */
export function hubAccess(flags: HubFlags): HubAccess {
  const hub = parseUrl(flags.hub);
  if (hub === null || !/^https?:$/.test(hub.protocol)) {
    const message = `--hub ${flags.hub} is not a URL that begins with https:// or http://`;
    throw new HubgateError('invalid-argument', message);
  }
  return {
    hub,
    token: flags.token === undefined ? null : argumentValue(flags.token),
    caFile: flags.cacert ?? null,
    insecure: flags.insecure === true,
  };
}

/** The error for a hub, or another server, that did not do what was requested. */
export function refusedBy(
  { hub }: HubAccess,
  { statusCode: status = 0, headers }: IncomingMessage,
  answer: string,
): HubgateError {
  // Too many requests, or a temporary failure: another try may succeed.
  const code = status === 429 || status >= 500 ? 'hub-unavailable' : 'hub-refused';
  const said = isPage({ headers }) ? 'a page' : answer;
  const advice = adviceFor(status, headers.location);
  return new HubgateError(code, `${hub.href} answered ${status}: ${said}${advice}`);
}

function isPage({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return /html/i.test(headers['content-type'] ?? '');
}

/** The error for a response with status 200 that is not from a hub. */
export function noHub({ hub }: HubAccess, { headers }: IncomingMessage): HubgateError {
  const type = headers['content-type'] ?? 'nothing';
  return new HubgateError(
    'hub-refused',
    `${hub.href} answered with ${type}, which a hub never does; is it the URL of the hub (/.well-known/hub unless the Hubfile says otherwise)?`,
  );
}

function adviceFor(status: number, location: string | undefined): string {
  if (location !== undefined) return ` — it redirects to ${location}; is that the hub?`;
  switch (status) {
    case 401:
    case 403:
      return ' — the gateway’s log says which check failed; `hubgate token inspect` explains a token';
    case 404:
    case 405:
      return ' — is it the URL of the hub (/.well-known/hub unless the Hubfile says otherwise)?';
    case 421:
      return ' — no site at that port has that name, or public_urls lacks this URL';
    default:
      return '';
  }
}

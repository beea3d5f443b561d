import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { argumentValue } from '../argument-value.ts';
import { type HubAccess, readText, requestHub } from '../hub-request.ts';
import type { Output } from '../output.ts';
import { requireUrl } from '../../kernel/parse-url.ts';

interface PublishFlags {
  readonly hub: string;
  readonly token?: string;
  readonly topic: readonly string[];
  readonly data?: string;
  readonly private?: true;
  readonly id?: string;
  readonly type?: string;
  readonly retry?: string;
  readonly cacert?: string;
  readonly insecure?: true;
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
    .option('--private', 'only for subscribers with a grant')
    .option('--id <id>', 'id of the update instead of one made by the hub')
    .option('--type <type>', 'event type')
    .option('--retry <ms>', 'reconnection time for subscribers')
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
      if (response.statusCode !== 200) throw refusedBy(access, response.statusCode ?? 0, answer);
      output.result(answer);
    });
}

/** @throws HubgateError `invalid-argument` */
export function hubAccess(flags: {
  readonly hub: string;
  readonly token?: string;
  readonly cacert?: string;
  readonly insecure?: true;
}): HubAccess {
  let hub: URL;
  try {
    hub = requireUrl(flags.hub);
  } catch (cause) {
    throw new HubgateError('invalid-argument', `--hub ${flags.hub} is not an absolute URL`, {
      cause,
    });
  }
  return {
    hub,
    token: flags.token === undefined ? null : argumentValue(flags.token),
    caFile: flags.cacert ?? null,
    insecure: flags.insecure === true,
  };
}

export function refusedBy({ hub }: HubAccess, status: number, answer: string): HubgateError {
  const advice =
    status === 401 || status === 403
      ? ' — the gateway’s log says which check failed; `hubgate token inspect` explains a token'
      : '';
  // Too many, or out of order for the moment: another try may succeed.
  const code = status === 429 || status >= 500 ? 'hub-unavailable' : 'hub-refused';
  return new HubgateError(code, `${hub.href} answered ${status}: ${answer}${advice}`);
}

import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import {
  type HubAccess,
  parseEventStream,
  readText,
  type ReceivedEvent,
  requestHub,
  type StreamPosition,
} from '../hub-request.ts';
import { type Output, printable } from '../terminal.ts';
import { hubAccess, type HubFlags, noHub, refusedBy } from './publish.ts';
import { requireUrl } from '../../kernel/parse.ts';

interface SubscribeFlags extends HubFlags {
  readonly match?: readonly string[];
  readonly matchUrlpattern?: readonly string[];
  readonly lastEventId?: string;
  readonly count?: string;
}

interface FollowedPosition extends StreamPosition {
  /** Whether the hub has responded before. */
  connected: boolean;
}

const DEFAULT_RETRY_MS = 1000;
const MAX_ANSWER_BYTES = 64 * 1024;

/** `hubgate subscribe`: prints events as they arrive, and continues where an interrupted stream ended. */
export function subscribeCommand(output: Output): Command {
  return new Command('subscribe')
    .description('print the updates of a hub as they arrive')
    .requiredOption('--hub <url>', 'URL of the hub')
    .option('--token <token|@file|@->', 'access token')
    .option('--match <topic...>', 'exact topic (default: "*", all topics)')
    .option('--match-urlpattern <pattern...>', 'URL Pattern of topics')
    .option(
      '--last-event-id <id>',
      'begin after this update; "earliest" for all that the hub has kept',
    )
    .option('--count <n>', 'stop after this many events')
    .option('--json', 'print one JSON object per line')
    .option('--cacert <file>', 'PEM file of an authority to trust')
    .option('--insecure', 'accept any certificate')
    .action(async (flags: SubscribeFlags) => {
      const access = hubAccess(flags);
      const url = subscriptionUrl(access.hub, flags);
      const limit = flags.count === undefined ? Number.POSITIVE_INFINITY : parseCount(flags.count);
      const position: FollowedPosition = {
        lastEventId: flags.lastEventId ?? '',
        retryMs: null,
        connected: false,
      };
      let printed = 0;
      for (;;) {
        for await (const event of eventsFrom(access, url, position, output)) {
          output.result(printable(flags.json === true ? JSON.stringify(event) : asText(event)));
          printed += 1;
          if (printed >= limit) return;
        }
        await sleep(position.retryMs ?? DEFAULT_RETRY_MS);
      }
    });
}

/** The events of one connection. Ends with the connection; throws if the hub refuses. */
async function* eventsFrom(
  access: HubAccess,
  url: URL,
  position: FollowedPosition,
  output: Output,
): AsyncGenerator<ReceivedEvent> {
  const abort = new AbortController();
  try {
    const response = await requestHub(access, {
      method: 'GET',
      url,
      headers: {
        accept: 'text/event-stream',
        ...(position.lastEventId === ''
          ? {}
          : { 'last-event-id': Buffer.from(position.lastEventId, 'utf8').toString('latin1') }),
      },
      body: null,
      signal: abort.signal,
    });
    if (response.statusCode !== 200) {
      throw refusedBy(access, response, (await readText(response, MAX_ANSWER_BYTES)).trimEnd());
    }
    if (!/^text\/event-stream\b/i.test(response.headers['content-type'] ?? ''))
      throw noHub(access, response);
    position.connected = true;
    yield* parseEventStream(response, position);
  } catch (error) {
    // A hub that has never responded has a wrong address. One that has responded will be back. A refusal is
    // final.
    if (codeOf(error) === 'hub-refused' || !position.connected) throw error;
    output.note(`The stream broke: ${messageOf(error)}. Reconnecting after the last event.`);
  } finally {
    abort.abort();
  }
}

function subscriptionUrl(hub: URL, flags: SubscribeFlags): URL {
  const url = requireUrl(hub.href);
  for (const topic of flags.match ?? []) url.searchParams.append('match', topic);
  for (const pattern of flags.matchUrlpattern ?? []) {
    url.searchParams.append('match_urlpattern', pattern);
  }
  if (flags.match === undefined && flags.matchUrlpattern === undefined) {
    url.searchParams.append('match', '*');
  }
  return url;
}

function asText({ id, type, data }: ReceivedEvent): string {
  return `${type === 'message' ? '' : `event: ${type}\n`}id: ${id}\n${data}\n`;
}

function parseCount(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new HubgateError('invalid-argument', `--count ${text} is not a whole number from 1`);
}

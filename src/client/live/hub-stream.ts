import { readEvents, type Update } from '../events.ts';

export interface HubStreamOptions {
  readonly address: URL;
  readonly topics: readonly string[];
  readonly relation: string;
  /** The last update that the page knows; null if it knows none. */
  readonly cursor: () => string | null;
  readonly signal: AbortSignal;
  readonly update: (update: Update) => void;
  /** Called when the page may have missed something. */
  readonly outdated: () => void;
  /** Gets a new token after the last one was refused. */
  readonly renew: () => Promise<Response>;
}

/** The cursor before the first update. */
const EARLIEST = 'earliest';
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;

/** Follows a hub across lost connections until `signal` is aborted or the hub refuses the topics. */
export async function followHub(options: HubStreamOptions): Promise<void> {
  const { address, topics, relation, cursor, signal, update, outdated, renew } = options;
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    try {
      const known = cursor();
      const target = new URL(address);
      for (const topic of topics) target.searchParams.append('match', topic);
      if (known !== null) target.searchParams.set('last_event_id', known);
      const stream = await fetch(target, { credentials: 'include', signal, cache: 'no-store' });
      if (stream.status === 401) await renew();
      if (stream.status === 400) {
        // The hub would refuse the same topics again.
        return console.error(address.href, await stream.text());
      }
      // The page of a login, to which a request may be redirected, is a success as well.
      if (stream.headers.get('Content-Type')?.includes('event-stream')) {
        wait = FIRST_WAIT_MS;
        // The history no longer reaches back to the cursor.
        const isLost = stream.headers.get(`${relation}-Last-Event-ID`) === EARLIEST;
        if (known === null || (isLost && known !== EARLIEST)) outdated();
        await readEvents(stream.body as ReadableStream<Uint8Array>, {
          update,
          retry: (milliseconds) => {
            wait = milliseconds;
          },
        });
      }
    } catch {
      // Whatever the error, the only reaction is another attempt.
    }
    // Pages that lost the same hub must not reconnect at the same moment.
    await sleep(wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, milliseconds));
}

import { utf8 } from '../client/discovery.ts';
import { pause, readEvents, type Update } from '../client/events.ts';

export interface StreamRequest {
  /** The hub's URL with the matchers. */
  readonly url: string;
  /** Empty: the cookie, or anonymous. */
  readonly token: string;
  /**
   * The update after which to begin; null begins with the next one. Until the first update, a new attempt
   * begins with the next update again: the hub has no cursor for this position, and `earliest` would replay
   * the whole history.
   */
  readonly cursor: string | null;
}

/** The current state of the stream. */
export type StreamState =
  | { readonly kind: 'connecting'; readonly attempt: number; readonly cursor: string | null }
  | { readonly kind: 'open'; readonly asked: string | null; readonly began: string | null }
  | { readonly kind: 'waiting'; readonly milliseconds: number; readonly why: string }
  | { readonly kind: 'refused'; readonly status: number; readonly why: string }
  | { readonly kind: 'closed' };

export interface StreamListener {
  readonly state: (state: StreamState) => void;
  readonly update: (update: Update) => void;
}

/** First wait before a new attempt, in milliseconds; it doubles up to the longest. */
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;

/**
 * Follows a hub until `signal` is aborted or the hub refuses permanently. It is not an `EventSource`, which
 * sends no token, and shows neither the cursor nor the reason for a refusal.
 *
 * @param cursorHeader response header with the beginning of a replay
 */
export async function follow(
  request: StreamRequest,
  cursorHeader: string,
  { state, update }: StreamListener,
  signal: AbortSignal,
): Promise<void> {
  let { cursor } = request;
  let firstWait = FIRST_WAIT;
  let wait = FIRST_WAIT;
  for (let attempt = 1; !signal.aborted; attempt += 1) {
    state({ kind: 'connecting', attempt, cursor });
    let why = 'the hub ended the stream';
    try {
      const answer = await ask(request, cursor, signal);
      if (!answer.ok) {
        const text = `${answer.status} ${(await answer.text()).trim()}`;
        if (isFinal(answer.status)) {
          return state({ kind: 'refused', status: answer.status, why: text });
        }
        throw new Error(text);
      }
      const header = answer.headers.get(cursorHeader);
      const began = header === null ? null : utf8(header);
      state({ kind: 'open', asked: cursor, began });
      [attempt, wait] = [0, firstWait];
      const body = answer.body ?? new Blob().stream();
      await readEvents(body, {
        update: (one) => {
          if (one.id !== '') cursor = one.id;
          update(one);
        },
        retry: (milliseconds) => {
          wait = firstWait = milliseconds;
        },
      });
    } catch (error) {
      why = error instanceof Error ? error.message : String(error);
    }
    if (signal.aborted) break;
    // Clients that lost the same hub must not reconnect at the same moment.
    const milliseconds = Math.round(wait * (0.5 + Math.random()));
    state({ kind: 'waiting', milliseconds, why });
    await pause(milliseconds, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
  state({ kind: 'closed' });
}

/** Whether updates may have been lost: the history did not reach back to the requested cursor. */
export function isGap(asked: string | null, began: string | null): boolean {
  return asked !== null && asked !== 'earliest' && began !== null && began !== asked;
}

/** Sends a cursor in the query if a header cannot contain it. */
function ask(
  { url, token }: StreamRequest,
  cursor: string | null,
  signal: AbortSignal,
): Promise<Response> {
  const target = new URL(url);
  const headers = new Headers(token === '' ? {} : { Authorization: `Bearer ${token}` });
  if (cursor !== null && /^[!-~]+$/.test(cursor)) headers.set('Last-Event-ID', cursor);
  else if (cursor !== null) target.searchParams.set('last_event_id', cursor);
  return fetch(target, { headers, signal, cache: 'no-store' });
}

/** The same request would be refused again. */
function isFinal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

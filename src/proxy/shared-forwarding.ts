import type { Writable } from 'node:stream';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { ResponseRecorder } from './response-recorder.ts';
import type { RequestCoalescer } from './coalescing.ts';
import { MAX_STALL_MS } from './forwarding.ts';
import { requestKey, type UpstreamQuestion } from './shareable.ts';
import type { SharedResponse, SharedResponseHold } from './shared-response.ts';

/** Bytes of a shared response that are written at a time to a client that accepts no more. */
const PIECE_BYTES = 16 * 1024;

/** Which concurrent requests of a site are equal. */
export interface RequestSharing {
  /** null for a request that is neither shared nor delayed. */
  groupOf(exchange: Exchange): RequestGroup | null;
  /** Waits before a request of a group that is sent for itself. */
  spread(exchange: Exchange): Promise<void>;
  /**
   * The fields of a response, in its head or its trailers, for other clients; null if they make it the
   * response of one client.
   */
  forOthers(fields: HeaderList): HeaderList | null;
  /** Called when a request got the response to another. */
  shared(): void;
}

interface RequestGroup {
  /** Requests of different groups share no response. */
  readonly name: string;
  readonly gatherMs: number;
  readonly keepMs: number;
}

/** How one proxy sends a request, and responds to it. */
export interface Forwarding {
  /** The request that an upstream would get; null if none is known. */
  readonly questionOf: (exchange: Exchange) => UpstreamQuestion | null;
  readonly ask: (recorder: ResponseRecorder | null) => Promise<void>;
  readonly replay: (answer: SharedResponse, hold: SharedResponseHold) => Promise<void>;
}

/** Forwards a request, or responds with the response to another one. */
export async function shareForwarding(
  exchange: Exchange,
  sharing: RequestSharing,
  coalescer: RequestCoalescer,
  { questionOf, ask, replay }: Forwarding,
): Promise<void> {
  const group = sharing.groupOf(exchange);
  if (group === null) return ask(null);
  const { name, gatherMs, keepMs } = group;
  const question = gatherMs === 0 && keepMs === 0 ? null : questionOf(exchange);
  const own = question === null ? null : requestKey(exchange, question);
  if (question !== null && own !== null) {
    const key = `${own} ${name}`;
    const fields = question.headers;
    const { forOthers } = sharing;
    const part = await coalescer.join({ exchange, key, fields, gatherMs, keepMs, forOthers });
    switch (part.kind) {
      case 'lead':
        try {
          await ask(part.recorder);
        } finally {
          part.recorder.close();
        }
        return;
      case 'follow':
        try {
          if (!exchange.abandoned) {
            sharing.shared();
            await replay(part.answer, part.hold);
          }
        } finally {
          part.hold.release();
        }
        return;
      case 'alone':
        break;
    }
  }
  await sharing.spread(exchange);
  await ask(null);
}

/**
 * Writes the body of a response, as fast as it is read. Resolves when all of it has been sent, or when
 * nothing reads it any more.
 */
export async function writeShared(
  { chunks }: SharedResponse,
  body: Writable,
  clock: Clock,
  client: { readonly end: () => void; readonly giveUp: () => void },
): Promise<void> {
  const stalled = (): void => client.giveUp();
  for (const piece of chunks.flatMap(piecesOf)) {
    if (body.destroyed) return;
    if (!body.write(piece) && !(await told(body, 'drain', clock, stalled))) return;
  }
  if (body.destroyed) return;
  const gone = told(body, 'finish', clock, stalled);
  client.end();
  await gone;
}

function piecesOf(chunk: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
    pieces.push(chunk.subarray(at, at + PIECE_BYTES));
  }
  return pieces;
}

/** Whether an event is emitted; false if the body closes before. */
function told(
  body: Writable,
  event: 'drain' | 'finish',
  clock: Clock,
  stalled: () => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = clock.after(MAX_STALL_MS, stalled);
    const settle = (came: boolean): void => {
      cancel();
      body.off(event, onEvent);
      body.off('close', onClose);
      resolve(came);
    };
    const onEvent = (): void => settle(true);
    const onClose = (): void => settle(false);
    body.once(event, onEvent);
    body.once('close', onClose);
  });
}

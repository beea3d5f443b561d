import type { Http2Stream } from 'node:http2';
import { type Readable, type Transform, Writable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { hasSent } from './body-memory.ts';

/**
 * Response bodies are ended only in this module, because an HTTP/2 stream tolerates only one way. When Node
 * closes such a stream, it emits `aborted` before it sends RST_STREAM. A stream that is destroyed at that
 * moment is gone for Node but not for nghttp2, whose loop then never ends. Node's pipelines do exactly that,
 * so this module does not use them.
 */

/** RFC 9113 §7: the response is complete, and the rest of the request is not wanted. */
const NO_ERROR = 0;

/**
 * Aborts a body, so that the client does not regard it as complete. Does nothing to a closed body. Node
 * reports an HTTP/2 stream as closed as soon as it begins to end.
 */
export function breakOff(body: Writable): void {
  if (body.destroyed || body.closed) return;
  // RFC 9113 §8.1: INTERNAL_ERROR tells the client that the response is incomplete. If the stream were closed
  // with that code, Node would first end the body in good order.
  body.destroy(isHttp2(body) ? new HubgateError('response-broken-off', BROKEN_OFF) : undefined);
}

const BROKEN_OFF = 'The response was aborted';

/**
 * The body of a response whose client has left. It takes nothing, and its `close` is still to come, so that everything that
 * waits for the end of a body learns of it. The client's own stream has emitted that event already.
 */
export function goneBody(): Writable {
  const body = new Writable({ write: (_chunk, _encoding, done) => done() });
  body.on('error', ignore);
  return body.destroy();
}

/**
 * RFC 9113 §8.1: after the response, the rest of the request is not wanted. This happens one turn after the
 * head. Some versions of Node (22.23, 26) would otherwise close the stream instead of sending a head without
 * a body.
 */
export function closeAnswered(stream: Http2Stream): void {
  setImmediate(() => {
    if (!stream.destroyed) stream.close(NO_ERROR);
  });
}

/**
 * Ends a stream in good order after the written data. Everything that the client still sends is discarded.
 */
export function endStream(stream: Http2Stream): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.writableFinished) return closeAnswered(stream);
  stream.once('finish', () => closeAnswered(stream));
  if (!stream.writableEnded) stream.end();
}

/**
 * Pipes each step into the next and the last one into a body, with back-pressure. If a step fails, the body
 * is aborted. If the body closes, the steps end. The writer to the first step learns of it from `close`.
 */
export function pipeSteps(steps: readonly Transform[], body: Writable): void {
  let isOver = false;
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    for (const step of steps) step.destroy();
    if (!body.writableEnded) breakOff(body);
  };
  for (const [index, step] of steps.entries()) {
    // Without a listener, it would end the process.
    step.on('error', end);
    step.once('close', () => {
      if (!step.readableEnded) end();
    });
    step.pipe(steps[index + 1] ?? body);
  }
  body.once('close', end);
  // A destroyed body emits nothing more.
  if (body.destroyed) process.nextTick(end);
}

/**
 * Writes everything from a source to a body, and ends the body. Resolves when everything is on its way. If
 * the source fails, the caller handles the error and the body.
 *
 * @param isReused whether the source reuses its buffer, so that each piece must be consumed before the next
 * one
 * @throws HubgateError `client-left` if the body closes before its end; any error of the source
 */
export async function pourInto(
  source: AsyncIterable<Buffer>,
  body: Writable,
  isReused = false,
): Promise<void> {
  for await (const chunk of source) {
    if (isGone(body)) throw clientLeft();
    if (isReused) await taken(body, chunk);
    else if (!body.write(chunk)) await emitted(body, 'drain');
  }
  if (isGone(body)) throw clientLeft();
  body.end();
  await emitted(body, 'finish');
}

/** Writes a chunk, and calls `done` when the body accepts more or has closed. */
export function writeTo(body: Writable, chunk: Buffer, done: () => void): void {
  if (body.destroyed || body.write(chunk)) return done();
  const goOn = (): void => {
    body.off('drain', goOn).off('close', goOn);
    done();
  };
  body.on('drain', goOn).on('close', goOn);
}

/** Resolves when a body accepts more or has closed. Calls `abort` if that takes longer than `limitMs`. */
export function drained(
  body: Writable,
  clock: Clock,
  limitMs: number,
  abort: () => void,
): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(limitMs, () => {
      abort();
      settle();
    });
    const settle = (): void => {
      cancel();
      body.off('drain', settle);
      body.off('close', settle);
      resolve();
    };
    body.once('drain', settle);
    body.once('close', settle);
  });
}

function isGone(body: Writable): boolean {
  return body.destroyed || body.closed || body.writableEnded;
}

/** Resolves when a body has released a chunk; rejects if it closes instead. */
function taken(body: Writable, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const onClose = (): void => reject(clientLeft());
    body.once('close', onClose);
    body.write(chunk, (error) => {
      body.off('close', onClose);
      if (hasSent(body, error)) resolve();
      else reject(clientLeft());
    });
  });
}

/** Resolves when a body emits the event; rejects if it closes instead. */
function emitted(body: Writable, event: 'drain' | 'finish'): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (error: Error | null): void => {
      body.off(event, onEvent).off('close', onClose).off('error', onClose);
      if (error === null) resolve();
      else reject(error);
    };
    const onEvent = (): void => settle(null);
    const onClose = (): void => settle(clientLeft());
    body.on(event, onEvent).on('close', onClose).on('error', onClose);
    if (event === 'finish' && body.writableFinished) onEvent();
    else if (body.destroyed) onClose();
  });
}

function clientLeft(): HubgateError {
  return new HubgateError('client-left', 'The client disconnected before the end of the response');
}

function isHttp2(body: Readable | Writable): boolean {
  return 'rstCode' in body;
}

import type { Http2Stream } from 'node:http2';
import type { Readable, Transform, Writable } from 'node:stream';
import { HubgateError } from '../kernel/error.ts';

/**
 * How the body of a response ends: here and nowhere else, for a stream of HTTP/2 bears only one way.
 * While Node closes such a stream it emits `aborted` before it has sent RST_STREAM. A stream that is
 * destroyed in there is gone for Node but not for nghttp2, whose loop then never ends. The pipelines of
 * Node do just that, so nothing here is piped with them.
 */

/** RFC 9113 §7: the response is complete, and the rest of the request is not wanted. */
const NO_ERROR = 0;

/**
 * Breaks a body off, so that the client cannot take it for complete. Does nothing to one that is closed
 * already: of an HTTP/2 stream Node says so from the beginning of its end.
 */
export function breakOff(body: Writable): void {
  if (body.destroyed || body.closed) return;
  // RFC 9113 §8.1: INTERNAL_ERROR tells the client that the response is not complete. Closed with that
  // code, Node would end the body in good order first.
  body.destroy(isHttp2(body) ? new HubgateError('response-broken-off', BROKEN_OFF) : undefined);
}

const BROKEN_OFF = 'The response was aborted';

/**
 * RFC 9113 §8.1: after the answer the rest of the request is not wanted. A turn later than the head was
 * given: some versions of Node (22.23, 26) would send what closes the stream instead of a head without a body.
 */
export function closeAnswered(stream: Http2Stream): void {
  setImmediate(() => {
    if (!stream.destroyed) stream.close(NO_ERROR);
  });
}

/** Ends a stream in good order after what was written; what the client still sends is dropped. */
export function endStream(stream: Http2Stream): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.writableFinished) {
    closeAnswered(stream);
    return;
  }
  stream.once('finish', () => closeAnswered(stream));
  if (!stream.writableEnded) stream.end();
}

/**
 * Pipes steps one into the other and the last into a body, with back-pressure. A step that fails breaks
 * the body off; a body that closes ends the steps. Whoever writes to the first learns of it by `close`.
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
    // Unheard it would end the process.
    step.on('error', end);
    step.once('close', () => {
      if (!step.readableEnded) end();
    });
    step.pipe(steps[index + 1] ?? body);
  }
  body.once('close', end);
  // Such a body says nothing more.
  if (body.destroyed) process.nextTick(end);
}

/**
 * Writes all that a source gives to a body, and ends it. Resolves when it is on its way; a source that
 * fails is for the caller, as is the body then.
 *
 * @param isReused whether the source fills the same buffer again, so that each piece has to be taken first
 * @throws HubgateError `client-left` when the body closes before its end; whatever the source throws
 */
export async function pourInto(
  source: AsyncIterable<Buffer>,
  body: Writable,
  isReused = false,
): Promise<void> {
  for await (const chunk of source) {
    if (isGone(body)) throw clientLeft();
    if (isReused) await taken(body, chunk);
    else if (!body.write(chunk)) await told(body, 'drain');
  }
  if (isGone(body)) throw clientLeft();
  body.end();
  await told(body, 'finish');
}

function isGone(body: Writable): boolean {
  return body.destroyed || body.closed || body.writableEnded;
}

/** Resolves when a body has let go of a chunk; rejects when it closes instead. */
function taken(body: Writable, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const onClose = (): void => reject(clientLeft());
    body.once('close', onClose);
    body.write(chunk, (error) => {
      body.off('close', onClose);
      if (error instanceof Error) reject(clientLeft());
      else resolve();
    });
  });
}

/** Resolves when a body says so; rejects when it closes instead. */
function told(body: Writable, event: 'drain' | 'finish'): Promise<void> {
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

import { Transform } from 'node:stream';
import zlib from 'node:zlib';
import { pipeSteps } from '../http/body-end.ts';
import type { BodyWrapper } from '../http/exchange.ts';
import { HubgateError } from '../kernel/error.ts';
import { HeadEnd } from './head-end.ts';

/** Brotli's own default of 11 takes tens of milliseconds for a page. */
const BROTLI = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
/** What an app has cut short goes on as far as it came. */
const LENIENT = { finishFlush: zlib.constants.Z_SYNC_FLUSH };
const LENIENT_BROTLI = { finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH };

/** Bytes of an encoded page that is known to be longer: it passes by as it is. */
export const MAX_ENCODED_BYTES = 16 * 1024 * 1024;
/**
 * Decoded bytes for each encoded one beyond the first few MB; then this is a compression bomb, and its answer is cut:
 * head and script are on their way. A page is never cut for its length, for nothing of it is kept here and its cost
 * grows with what the app sends.
 */
export const MAX_RATIO = 200;
const FREE_BYTES = 4 * 1024 * 1024;

/** Decides what goes in, of the `meta` elements that come before; null for nothing. */
export type MakeScript = (metas: readonly string[]) => Buffer | null;

interface Coding {
  readonly decoder: () => Transform & { readonly bytesWritten: number };
  readonly encoder: () => Transform & { flush(): void };
}

/** Codings that are undone and done again (RFC 9110 §8.4.1). */
const CODINGS: ReadonlyMap<string, Coding | null> = new Map([
  ['identity', null],
  ['gzip', { decoder: () => zlib.createGunzip(LENIENT), encoder: () => zlib.createGzip() }],
  ['x-gzip', { decoder: () => zlib.createGunzip(LENIENT), encoder: () => zlib.createGzip() }],
  ['deflate', { decoder: () => zlib.createInflate(LENIENT), encoder: () => zlib.createDeflate() }],
  [
    'br',
    {
      decoder: () => zlib.createBrotliDecompress(LENIENT_BROTLI),
      encoder: () => zlib.createBrotliCompress(BROTLI),
    },
  ],
]);

/**
 * Whether a body in this `Content-Encoding`, of this length where it is known, can be looked into. A page that is
 * known to be long passes by; one that turns out to be long has its script by then.
 */
export function canDecode(encoding: string, length: number | null): boolean {
  if (encoding === 'identity') return true;
  return CODINGS.has(encoding) && (length ?? 0) <= MAX_ENCODED_BYTES;
}

/** Puts a script before the end of a document's head while it streams by. */
export function injecting(encoding: string, makeScript: () => MakeScript): BodyWrapper {
  const coding = CODINGS.get(encoding) ?? null;
  return (body) => {
    const insertion = inserting(makeScript());
    if (coding === null) {
      pipeSteps([insertion], body);
      return insertion;
    }
    const decoder = coding.decoder();
    const encoder = coding.encoder();
    // What has been written leaves with the same turn of the event loop.
    let flushing: NodeJS.Immediate | undefined;
    insertion.on('data', () => {
      flushing ??= setImmediate(() => {
        flushing = undefined;
        if (!encoder.destroyed && !encoder.writableEnded) encoder.flush();
      });
    });
    pipeSteps([decoder, bounded(decoder), insertion, encoder], body);
    return decoder;
  };
}

/** Passes on what is decoded, and fails where that is more than an honest page of this length decodes to. */
function bounded(decoder: Transform & { readonly bytesWritten: number }): Transform {
  let decoded = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      decoded += chunk.length;
      const mayDecode = Math.max(FREE_BYTES, decoder.bytesWritten * MAX_RATIO);
      if (decoded > mayDecode)
        done(new HubgateError('page-too-large', 'The page decodes to too many bytes'));
      else done(null, chunk);
    },
  });
}

/** Passes every byte on as it is, and one script among them. */
function inserting(makeScript: MakeScript): Transform {
  const head = new HeadEnd();
  let held: Buffer = Buffer.alloc(0);
  let isOver = false;

  const pass = (stream: Transform, chunk: Buffer, isLast: boolean): void => {
    const bytes = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    held = Buffer.alloc(0);
    const found = head.scan(bytes, isLast);
    if (found.kind === 'more') {
      if (found.from > 0) stream.push(bytes.subarray(0, found.from));
      held = bytes.subarray(found.from);
      return;
    }
    isOver = true;
    const script = found.kind === 'end' ? makeScript(head.metas) : null;
    const at = found.kind === 'end' ? found.at : bytes.length;
    if (at > 0) stream.push(bytes.subarray(0, at));
    if (script !== null) stream.push(script);
    if (at < bytes.length) stream.push(bytes.subarray(at));
  };

  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (isOver) this.push(chunk);
      else pass(this, chunk, false);
      done();
    },
    flush(done) {
      if (!isOver) pass(this, Buffer.alloc(0), true);
      done();
    },
  });
}

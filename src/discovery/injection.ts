import { Transform } from 'node:stream';
import zlib from 'node:zlib';
import { pipeSteps } from '../http/body-end.ts';
import {
  brotli,
  deflate,
  type Encoding,
  gzip,
  hasRoomFor,
  isZlib,
  startEncoder,
} from '../http/encoders.ts';
import type { BodyWrapper } from '../http/exchange.ts';
import { HubgateError } from '../kernel/error.ts';
import { HeadEnd } from './head-end.ts';

/** If an app has truncated its response, the available part is passed on. */
const LENIENT = { finishFlush: zlib.constants.Z_SYNC_FLUSH };
const LENIENT_BROTLI = { finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH };

/** RFC 1950 §2.2: DEFLATE with a window of 32 KiB, and no dictionary. */
const ZLIB_HEADER = Buffer.from([0x78, 0x9c]);

/** Bytes of an encoded page. A page that is known to be longer passes unchanged. */
export const MAX_ENCODED_BYTES = 16 * 1024 * 1024;
/**
 * Decoded bytes per encoded byte beyond the first few MB. A higher ratio is a compression bomb, and its
 * response is cut; head and script have already been sent. A page is never cut because of its length, because
 * nothing of it is stored here and its cost grows with what the app sends.
 */
export const MAX_RATIO = 200;
const FREE_BYTES = 4 * 1024 * 1024;

/** Creates the inserted script, given the `meta` and `base` elements before it; null for none. */
export type MakeScript = (elements: readonly string[]) => Buffer | null;

interface Coding {
  readonly decoder: () => Transform & { readonly bytesWritten: number };
  readonly encoding: Encoding;
}

/** Codings that are decoded and encoded again (RFC 9110 §8.4.1). */
const CODINGS: ReadonlyMap<string, Coding | null> = new Map([
  ['identity', null],
  ['gzip', { decoder: () => zlib.createGunzip(LENIENT), encoding: gzip(null) }],
  ['x-gzip', { decoder: () => zlib.createGunzip(LENIENT), encoding: gzip(null) }],
  ['deflate', { decoder: () => zlib.createInflate(LENIENT), encoding: deflate }],
  [
    'br',
    {
      decoder: () => zlib.createBrotliDecompress(LENIENT_BROTLI),
      encoding: brotli,
    },
  ],
]);

/**
 * Whether a body with this `Content-Encoding`, and with this length if it is known, can be decoded now. A page
 * that is known to be long passes unchanged, and so does one for which there is no memory. A page that turns out
 * to be long already has its script.
 */
export function canDecode(encoding: string, length: number | null, client: string): boolean {
  const coding = CODINGS.get(encoding);
  if (coding === undefined || coding === null) return coding === null;
  return (length ?? 0) <= MAX_ENCODED_BYTES && hasRoomFor(coding.encoding, client);
}

/**
 * Inserts a script before the end of a document's head while the document streams.
 *
 * @param client the address to which the document goes
 */
export function injecting(
  encoding: string,
  client: string,
  makeScript: () => MakeScript,
): BodyWrapper {
  const coding = CODINGS.get(encoding) ?? null;
  return (body) => {
    const insertion = inserting(makeScript());
    if (coding === null) {
      pipeSteps([insertion], body);
      return insertion;
    }
    const decoder = coding.decoder();
    const encoder = startEncoder(coding.encoding, client);
    // Written data is sent in the same turn of the event loop.
    let flushing: NodeJS.Immediate | undefined;
    insertion.on('data', () => {
      flushing ??= setImmediate(() => {
        flushing = undefined;
        if (!encoder.destroyed && !encoder.writableEnded) encoder.flush();
      });
    });
    const isDeflate = coding.encoding === deflate;
    const steps: [Transform, ...Transform[]] = isDeflate ? [inZlibFormat(), decoder] : [decoder];
    pipeSteps([...steps, bounded(decoder), insertion, encoder], body);
    return steps[0];
  };
}

/** Puts the header of the zlib format before raw DEFLATE data. The checksum at its end stays missing. */
function inZlibFormat(): Transform {
  let isFirst = true;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (isFirst && chunk.length > 0) {
        isFirst = false;
        if (!isZlib(chunk)) this.push(ZLIB_HEADER);
      }
      done(null, chunk);
    },
  });
}

/** Passes on decoded data, and fails if it is more than a normal page of this length contains. */
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

/** Passes on every byte unchanged, with one script in between. */
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
    const script = found.kind === 'end' ? makeScript(head.elements) : null;
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

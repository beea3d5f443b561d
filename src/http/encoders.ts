// A client chooses how long an encoder lives, because one that is not read waits with all its memory. Windows of
// 128 KiB, as in Caddy, need a third of the memory of the usual ones, and text becomes hardly longer.

import type { Transform } from 'node:stream';
import zlib from 'node:zlib';
import { fairShareNetwork } from './rate-limits.ts';

const MIB = 1024 * 1024;

/** Memory of all encoders of this process. Beyond it, responses are sent as they are. */
export const MAX_ENCODER_BYTES = 256 * MIB;
/** The part of it that the clients of one network may occupy, so that the others still get encoded responses. */
export const MAX_NETWORK_BYTES = MAX_ENCODER_BYTES / 2;

/** Exponent of the window's size. */
const WINDOW_BITS = 17;

/** Brotli's own default of 11 takes tens of milliseconds for a page. */
const BROTLI = {
  params: {
    [zlib.constants.BROTLI_PARAM_QUALITY]: 4,
    [zlib.constants.BROTLI_PARAM_LGWIN]: WINDOW_BITS,
  },
};

/** `ZSTD_c_compressionLevel` and `ZSTD_c_windowLog` of the library. */
const [ZSTD_LEVEL, ZSTD_WINDOW] = [100, 101];

export type Encoder = Transform & { flush(): void };

/** A way to encode bodies. */
export interface Encoding {
  /** Approximate memory of one encoder. */
  readonly bytes: number;
  readonly create: () => Encoder;
}

export const brotli: Encoding = {
  bytes: 1.5 * MIB,
  create: () => zlib.createBrotliCompress(BROTLI),
};

export const deflate: Encoding = { bytes: MIB, create: () => zlib.createDeflate() };

/**
 * Whether bytes with `Content-Encoding: deflate` begin in the zlib format (RFC 1950 §2.2), as RFC 9110 §8.4.1.2 requires.
 * Some apps send raw DEFLATE data (RFC 1951) instead, which browsers accept; it never begins with such a byte.
 */
export function isZlib(bytes: Uint8Array): boolean {
  return ((bytes[0] ?? 0) & 0x0f) === 8;
}

/** @param level from 1 to 9; null means 6 */
export function gzip(level: number | null): Encoding {
  const options = level === null ? {} : { level };
  return { bytes: MIB, create: () => zlib.createGzip(options) };
}

type CreateZstd = (options: { readonly params: Readonly<Record<number, number>> }) => Encoder;

/** Zstandard was added in Node 22.15, where this is not null; the types here are those of Node 20. */
export function zstd(level: number): Encoding | null {
  const found: unknown = Reflect.get(zlib, 'createZstdCompress');
  if (typeof found !== 'function') return null;
  // A function of Node with the same signature as the similar ones.
  const create = found as CreateZstd;
  const options = { params: { [ZSTD_LEVEL]: level, [ZSTD_WINDOW]: WINDOW_BITS } };
  return { bytes: zstdBytes(level), create: () => create(options) };
}

type DecompressZstd = (
  bytes: Buffer,
  options: { readonly maxOutputLength: number; readonly params: Readonly<Record<number, number>> },
) => Buffer;

/** `ZSTD_d_windowLogMax` of the library, and the largest window of a response: 8 MiB (RFC 9659). */
const [ZSTD_MAX_WINDOW, MAX_WINDOW_BITS] = [100, 23];

/** @throws for bytes that cannot be decoded, as all do before Node 22.15 */
export function decompressZstd(bytes: Buffer, maxOutputLength: number): Buffer {
  const found: unknown = Reflect.get(zlib, 'zstdDecompressSync');
  if (typeof found !== 'function') throw new TypeError('this Node has no zstd');
  // A function of Node with the same signature as the similar ones.
  const decompress = found as DecompressZstd;
  return decompress(bytes, { maxOutputLength, params: { [ZSTD_MAX_WINDOW]: MAX_WINDOW_BITS } });
}

/** Above 3, the tables that the library searches are larger than its window. */
function zstdBytes(level: number): number {
  if (level <= 3) return 1.5 * MIB;
  return level <= 7 ? 6 * MIB : 22 * MIB;
}

/** Memory that the encoders of this process occupy, in total and by the network of their clients. */
let used = 0;
const usedBy = new Map<string, number>();

/** Whether there is memory for one more encoder, whose output goes to a client with this address. */
export function hasRoomFor({ bytes }: Encoding, client: string): boolean {
  const own = usedBy.get(fairShareNetwork(client)) ?? 0;
  return used + bytes <= MAX_ENCODER_BYTES && own + bytes <= MAX_NETWORK_BYTES;
}

/** Creates an encoder, which occupies memory until it has ended or is destroyed. */
export function startEncoder({ bytes, create }: Encoding, client: string): Encoder {
  const encoder = create();
  const network = fairShareNetwork(client);
  occupy(bytes, network);
  encoder.once('close', () => occupy(-bytes, network));
  return encoder;
}

function occupy(bytes: number, network: string): void {
  used += bytes;
  const own = (usedBy.get(network) ?? 0) + bytes;
  if (own === 0) usedBy.delete(network);
  else usedBy.set(network, own);
}

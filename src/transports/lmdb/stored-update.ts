import { crc32 } from 'node:zlib';
import type { Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';

/*
 * version   1 byte
 * accepted  8 bytes, milliseconds since the Unix epoch as a double
 * checksum  4 bytes, CRC-32 of everything else
 * id        2 bytes of length, UTF-8
 * rest      JSON: [topics, data, private, type, retry]
 *
 * The id stands in front, so that evicting an update does not decode it. The checksum is there
 * because LMDB has none: a flipped bit must not reach a subscriber.
 */
const VERSION = 1;
const CHECKSUM_AT = 9;
const ID_AT = 13;
const TEXT_AT = 15;

type Rest = [Update['topics'], string, boolean, string | null, string | null];

export interface StoredUpdate {
  readonly update: Update;
  /** When it was accepted: milliseconds since the Unix epoch. */
  readonly at: number;
}

export function encodeStored(
  { id, topics, data, private: secret, type, retry }: Update,
  at: number,
) {
  const rest: Rest = [[...topics], data, secret, type, retry];
  const text = id + JSON.stringify(rest);
  const bytes = Buffer.allocUnsafe(TEXT_AT + Buffer.byteLength(text));
  bytes[0] = VERSION;
  bytes.writeDoubleBE(at, 1);
  bytes.writeUInt16BE(Buffer.byteLength(id), ID_AT);
  bytes.write(text, TEXT_AT);
  bytes.writeUInt32BE(checksum(bytes), CHECKSUM_AT);
  return bytes;
}

/** @throws HubgateError `history-damaged`, `history-too-new` */
export function decodeStored(bytes: Buffer): StoredUpdate {
  if (bytes[0] !== undefined && bytes[0] > VERSION && checksumFits(bytes)) {
    throw new HubgateError('history-too-new', 'an update was stored by a later version of hubgate');
  }
  if (bytes[0] !== VERSION || !checksumFits(bytes)) {
    throw new HubgateError('history-damaged', 'an update does not have the checksum it was given');
  }
  const { id, at } = storedHead(bytes);
  const json = bytes.toString('utf8', TEXT_AT + bytes.readUInt16BE(ID_AT));
  // What encodeStored has written: the checksum says so.
  const [topics, data, secret, type, retry] = JSON.parse(json) as Rest;
  return { update: { id, topics, data, private: secret, type, retry }, at };
}

/** Id and time alone, without looking at the rest. */
export function storedHead(bytes: Buffer): { readonly id: string; readonly at: number } {
  if (bytes.length < TEXT_AT) return { id: '', at: 0 };
  const length = bytes.readUInt16BE(ID_AT);
  return { id: bytes.toString('utf8', TEXT_AT, TEXT_AT + length), at: bytes.readDoubleBE(1) };
}

function checksumFits(bytes: Buffer): boolean {
  return bytes.length >= TEXT_AT && bytes.readUInt32BE(CHECKSUM_AT) === checksum(bytes);
}

function checksum(bytes: Buffer): number {
  return crc32(bytes.subarray(ID_AT), crc32(bytes.subarray(0, CHECKSUM_AT)));
}

import { crc32 } from 'node:zlib';
import type { Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';

/*
 * version   1 byte
 * accepted  8 bytes, milliseconds since the Unix epoch as a double
 * checksum  4 bytes, CRC-32 of everything else
 * id        2 bytes of length; its text, in UTF-8, follows the fields of version 2
 * kind      1 byte, only in version 2: 1 for a presence event
 * before    8 bytes, only in version 2: number of updates ever stored before it, as a double
 * rest      JSON: [topics, data, private, type, retry]
 *
 * The id comes first, so that eviction does not decode the update. The checksum is needed because LMDB has
 * none: a flipped bit must not reach a subscriber. Version 1 is written if all entries before it are updates.
 */
const VERSION = 1;
const VERSION_WITH_EVENTS = 2;
const CHECKSUM_AT = 9;
const ID_AT = 13;
const KIND_AT = 15;
const BEFORE_AT = 16;
const TEXT_AT = 15;
const TEXT_WITH_EVENTS_AT = 24;

type Rest = [Update['topics'], string, boolean, string | null, string | null];

export interface StoredUpdate {
  readonly update: Update;
  /** Time of publication, in milliseconds since the Unix epoch. */
  readonly at: number;
}

/** The properties of an entry that eviction and the search for damage need. */
export interface StoredHead {
  readonly id: string;
  readonly at: number;
  /** The number of updates ever stored before it, without presence events. */
  readonly before: number;
  readonly isEvent: boolean;
}

/** @param before the number of updates ever stored before it, without presence events */
export function encodeStored(update: Update, at: number, position: number, before: number): Buffer {
  const { id, topics, data, private: secret, type, retry, presence } = update;
  const isPlain = presence !== true && before === position - 1;
  const textAt = isPlain ? TEXT_AT : TEXT_WITH_EVENTS_AT;
  const rest: Rest = [[...topics], data, secret, type, retry];
  const text = id + JSON.stringify(rest);
  const bytes = Buffer.allocUnsafe(textAt + Buffer.byteLength(text));
  bytes[0] = isPlain ? VERSION : VERSION_WITH_EVENTS;
  bytes.writeDoubleBE(at, 1);
  bytes.writeUInt16BE(Buffer.byteLength(id), ID_AT);
  if (!isPlain) {
    bytes[KIND_AT] = presence === true ? 1 : 0;
    bytes.writeDoubleBE(before, BEFORE_AT);
  }
  bytes.write(text, textAt);
  bytes.writeUInt32BE(checksum(bytes), CHECKSUM_AT);
  return bytes;
}

/** @throws HubgateError `history-damaged`, `history-too-new` */
export function decodeStored(bytes: Buffer): StoredUpdate {
  const [version = 0] = bytes;
  if (version > VERSION_WITH_EVENTS && checksumFits(bytes)) {
    throw new HubgateError('history-too-new', 'an update was stored by a later version of hubgate');
  }
  if (version < VERSION || version > VERSION_WITH_EVENTS || !checksumFits(bytes)) {
    throw new HubgateError('history-damaged', 'an update does not have the checksum it was given');
  }
  const { id, at, isEvent } = storedHead(bytes, 0);
  const json = bytes.toString('utf8', textStart(bytes) + bytes.readUInt16BE(ID_AT));
  // encodeStored wrote it, as the checksum shows.
  const [topics, data, secret, type, retry] = JSON.parse(json) as Rest;
  const update = { id, topics, data, private: secret, type, retry };
  return { update: isEvent ? { ...update, presence: true } : update, at };
}

/** Only the head, without reading the rest. */
export function storedHead(bytes: Buffer, position: number): StoredHead {
  const start = textStart(bytes);
  const hasEvents = start === TEXT_WITH_EVENTS_AT;
  const before = hasEvents && bytes.length >= start ? bytes.readDoubleBE(BEFORE_AT) : position - 1;
  if (bytes.length < start) return { id: '', at: 0, before, isEvent: false };
  const id = bytes.toString('utf8', start, start + bytes.readUInt16BE(ID_AT));
  return { id, at: bytes.readDoubleBE(1), before, isEvent: hasEvents && bytes[KIND_AT] === 1 };
}

function textStart(bytes: Buffer): number {
  return bytes[0] === VERSION_WITH_EVENTS ? TEXT_WITH_EVENTS_AT : TEXT_AT;
}

function checksumFits(bytes: Buffer): boolean {
  return bytes.length >= TEXT_AT && bytes.readUInt32BE(CHECKSUM_AT) === checksum(bytes);
}

function checksum(bytes: Buffer): number {
  return crc32(bytes.subarray(ID_AT), crc32(bytes.subarray(0, CHECKSUM_AT)));
}

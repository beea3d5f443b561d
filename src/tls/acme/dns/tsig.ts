import { createHmac, timingSafeEqual } from 'node:crypto';
import {
  CLASS,
  decodeResponse,
  type DnsResponse,
  encodeName,
  encodeRecord,
  MessageReader,
  TYPE,
  uint16,
} from './message.ts';

export interface TsigKey {
  readonly name: string;
  readonly algorithm: 'hmac-sha256' | 'hmac-sha512';
  readonly secret: Buffer;
}

export interface SignedRequest {
  readonly message: Buffer;
  readonly mac: Buffer;
}

/** Largest difference between the clocks of both sides, in seconds (RFC 8945 §10). */
const FUDGE_S = 300;
const DIGESTS = { 'hmac-sha256': 'sha256', 'hmac-sha512': 'sha512' } as const;
/** Codes for the reasons why a signature is rejected (RFC 8945 §3). */
const ERRORS: Readonly<Record<number, string>> = {
  16: 'BADSIG: the key is wrong',
  17: 'BADKEY: the server does not know the key by this name and algorithm',
  18: 'BADTIME: the clocks of server and gateway are too far apart',
  22: 'BADTRUNC: the signature is too short',
};

/** Signs a message (RFC 8945 §5.1). */
export function signRequest(message: Buffer, key: TsigKey, nowMs: number): SignedRequest {
  const time = uint48(Math.floor(nowMs / 1000));
  const variables = signedVariables(key, time, FUDGE_S, 0, Buffer.alloc(0));
  const mac = digest(key, [message, variables]);
  const data = Buffer.concat([
    encodeName(key.algorithm),
    time,
    uint16(FUDGE_S),
    uint16(mac.length),
    mac,
    message.subarray(0, 2),
    uint16(0),
    uint16(0),
  ]);
  const record = { name: key.name, type: TYPE.TSIG, class: CLASS.ANY, ttl: 0, data };
  const signed = Buffer.concat([message, encodeRecord(record)]);
  signed.writeUInt16BE(message.readUInt16BE(10) + 1, 10);
  return { message: signed, mac };
}

/**
 * Reads and verifies a response, whose signature belongs to exactly this request (RFC 8945 §5.3).
 *
 * @throws RangeError if the response is invalid
 */
export function openResponse(
  message: Buffer,
  request: SignedRequest,
  key: TsigKey,
  nowMs: number,
): DnsResponse {
  const response = decodeResponse(message);
  if (response.id !== request.message.readUInt16BE(0)) throw new RangeError('another response');
  if (response.signature === null) {
    // A server that does not know the key cannot sign. Its unsigned response is accepted only as a refusal.
    if (response.code !== 0) return response;
    throw new RangeError('the response is not signed');
  }
  const { record, start } = response.signature;
  const reader = new MessageReader(record.data, 0);
  const algorithm = reader.name();
  const time = reader.bytes(6);
  const fudge = reader.uint16();
  const mac = reader.bytes(reader.uint16());
  reader.bytes(2);
  const error = reader.uint16();
  const other = reader.bytes(reader.uint16());
  if (error !== 0 && mac.length === 0) throw new RangeError(ERRORS[error] ?? `TSIG error ${error}`);
  if (record.name !== key.name.toLowerCase().replace(/\.$/, '') || algorithm !== key.algorithm) {
    throw new RangeError('the response is signed with another key');
  }
  const unsigned = Buffer.from(message.subarray(0, start));
  unsigned.writeUInt16BE(unsigned.readUInt16BE(10) - 1, 10);
  const variables = signedVariables(key, time, fudge, error, other);
  const expected = digest(key, [uint16(request.mac.length), request.mac, unsigned, variables]);
  if (mac.length !== expected.length || !timingSafeEqual(mac, expected)) {
    throw new RangeError('the signature of the response is wrong');
  }
  if (error !== 0) throw new RangeError(ERRORS[error] ?? `TSIG error ${error}`);
  if (Math.abs(time.readUIntBE(0, 6) - nowMs / 1000) > FUDGE_S) throw new RangeError(ERRORS[18]);
  return response;
}

function digest(key: TsigKey, parts: readonly Buffer[]): Buffer {
  const hmac = createHmac(DIGESTS[key.algorithm], key.secret);
  for (const part of parts) hmac.update(part);
  return hmac.digest();
}

/** RFC 8945 §4.3.3. */
function signedVariables(
  key: TsigKey,
  time: Buffer,
  fudge: number,
  error: number,
  other: Buffer,
): Buffer {
  return Buffer.concat([
    encodeName(key.name),
    uint16(CLASS.ANY),
    Buffer.alloc(4),
    encodeName(key.algorithm),
    time,
    uint16(fudge),
    uint16(error),
    uint16(other.length),
    other,
  ]);
}

function uint48(value: number): Buffer {
  const bytes = Buffer.alloc(6);
  bytes.writeUIntBE(value, 0, 6);
  return bytes;
}

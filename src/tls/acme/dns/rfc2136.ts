// Dynamic updates and their signatures are implemented here, over TCP, because no maintained library verifies
// the responses.

import { randomInt, createHmac, timingSafeEqual } from 'node:crypto';
import { connect } from 'node:net';
import { isDnsName, parseNameServer, type Rfc2136Config } from '../../../config/dns-challenge.ts';
import { messageOf } from '../../../kernel/error.ts';
import { AcmeError } from '../acme-error.ts';
import {
  CLASS,
  type DnsRecord,
  type DnsRequest,
  type DnsResponse,
  encodeRequest,
  textData,
  TYPE,
  uint16,
  decodeResponse,
  encodeName,
  encodeRecord,
  MessageReader,
} from './message.ts';
import type { ChallengeRecord, DnsProvider } from './services/provider.ts';

/** Time for one question or update, including the connection. */
const EXCHANGE_MS = 10_000;

/** Response codes (RFC 1035 §4.1.1, RFC 2136 §2.2). */
const CODES = [
  'NOERROR',
  'FORMERR',
  'SERVFAIL',
  'NXDOMAIN',
  'NOTIMP',
  'REFUSED',
  'YXDOMAIN',
  'YXRRSET',
  'NXRRSET',
  'NOTAUTH',
  'NOTZONE',
];
const [NO_ERROR, NAME_ERROR] = [0, 3];

/**
 * Dynamic updates (RFC 2136) over TCP, each with a signature (RFC 8945). The signature of the response
 * authenticates the server.
 */
export function rfc2136Provider(config: Rfc2136Config): DnsProvider {
  const change = async (
    record: Pick<DnsRecord, 'name' | 'class' | 'ttl' | 'data'>,
    signal: AbortSignal,
  ): Promise<void> => {
    const zone = config.zone ?? (await findZone(record.name, config, signal));
    const update = { ...record, type: TYPE.TXT };
    const { code } = await exchange({ kind: 'update', name: zone, update }, config, signal);
    if (code !== NO_ERROR) throw failed(config, `refuses to change ${record.name}: ${CODES[code]}`);
  };
  const part = ({ name, value }: ChallengeRecord) => ({ name, data: textData(value) });
  return {
    present: (record, signal) =>
      change({ ...part(record), class: CLASS.IN, ttl: record.ttlSeconds }, signal),
    // "Delete an RR from an RRset" (RFC 2136 §2.5.4).
    cleanup: (record, signal) => change({ ...part(record), class: CLASS.NONE, ttl: 0 }, signal),
  };
}

/** The server of a zone names the zone in its responses about names of the zone (RFC 2308 §3). */
async function findZone(name: string, config: Rfc2136Config, signal: AbortSignal): Promise<string> {
  const labels = name.split('.');
  let last = '';
  for (let first = 0; first < labels.length; first += 1) {
    const asked = labels.slice(first).join('.');
    const query = { kind: 'query', name: asked, update: null } as const;
    const { code, answers, authorities } = await exchange(query, config, signal);
    last = CODES[code] ?? String(code);
    if (code !== NO_ERROR && code !== NAME_ERROR) continue;
    const zone = [...answers, ...authorities].find(
      (record) => record.type === TYPE.SOA && `.${name}`.endsWith(`.${record.name}`),
    );
    if (zone !== undefined) return zone.name;
  }
  throw failed(config, `knows no zone of ${name} (${last}): set it with zone <name>`);
}

async function exchange(
  request: Omit<DnsRequest, 'id'>,
  config: Rfc2136Config,
  signal: AbortSignal,
): Promise<DnsResponse> {
  const server = parseNameServer(config.server);
  if (server === null || !isDnsName(config.keyName)) {
    throw failed(config, 'does not accept the key: check server and key_name');
  }
  const key: TsigKey = {
    name: config.keyName,
    algorithm: config.algorithm,
    secret: Buffer.from(config.key.reveal(), 'base64'),
  };
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(EXCHANGE_MS)]);
  try {
    const message = encodeRequest({ ...request, id: randomInt(0x10000) });
    const signed = signRequest(message, key, Date.now());
    const answer = await sendOverTcp(server, signed.message, deadline);
    return openResponse(answer, signed, key, Date.now());
  } catch (cause) {
    signal.throwIfAborted();
    const why = deadline.aborted ? 'it does not answer in time' : messageOf(cause);
    throw failed(config, `cannot be asked: ${why}`, cause);
  }
}

function failed({ server }: Rfc2136Config, message: string, cause?: unknown): AcmeError {
  return new AcmeError('acme-dns-failed', `The name server ${server} ${message}`, { cause });
}

/** Sends one message and reads one, each with its length in front (RFC 1035 §4.2.2). */
function sendOverTcp(
  server: { readonly host: string; readonly port: number },
  message: Buffer,
  signal: AbortSignal,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect(server);
    const stop = (): void => void socket.destroy(new Error('given up'));
    signal.addEventListener('abort', stop, { once: true });
    // At most the 65,535 bytes that the length field allows, plus the rest of one chunk.
    let received = Buffer.alloc(0);
    socket.on('connect', () => socket.write(Buffer.concat([uint16(message.length), message])));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 2) return;
      const end = 2 + received.readUInt16BE(0);
      if (received.length < end) return;
      resolve(received.subarray(2, end));
      socket.destroy();
    });
    socket.on('error', reject);
    socket.on('close', () => {
      signal.removeEventListener('abort', stop);
      reject(new Error('it closed the connection without a response'));
    });
    if (signal.aborted) stop();
  });
}

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

// Dynamic updates and their signatures are implemented here, over TCP, because no maintained library verifies
// the responses.

import { randomInt } from 'node:crypto';
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
} from './message.ts';
import type { ChallengeRecord, DnsProvider } from './provider.ts';
import { openResponse, signRequest, type TsigKey } from './tsig.ts';

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
  const patience = AbortSignal.any([signal, AbortSignal.timeout(EXCHANGE_MS)]);
  try {
    const message = encodeRequest({ ...request, id: randomInt(0x10000) });
    const signed = signRequest(message, key, Date.now());
    const answer = await sendOverTcp(server, signed.message, patience);
    return openResponse(answer, signed, key, Date.now());
  } catch (cause) {
    signal.throwIfAborted();
    const why = patience.aborted ? 'it does not answer in time' : messageOf(cause);
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

import { randomBytes, X509Certificate } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { request } from 'node:http';
import { isIP } from 'node:net';
import { connect } from 'node:tls';
import { codeOf } from '../../kernel/error.ts';
import { AcmeError } from './acme-error.ts';
import { challengeName, type Challenges, type FileChallengeType } from './challenges.ts';

/** How it is seen whether a name leads here. */
export interface NameCheck {
  /** Addresses of a name; throws as `dns.lookup` does. */
  readonly lookup: (name: string) => Promise<readonly string[]>;
  /** Ports at which authorities look. */
  readonly httpPort: number;
  readonly httpsPort: number;
}

/** With the resolver of this machine, at the ports of RFC 8555 §8.3 and RFC 8737 §3. */
export const publicNameCheck: NameCheck = {
  lookup: async (name) => (await lookup(name, { all: true })).map(({ address }) => address),
  httpPort: 80,
  httpsPort: 443,
};

/** Code of the error for a name that leads elsewhere. */
export const NAME_ELSEWHERE = 'acme-name-elsewhere';

/** For one address to answer. */
const ANSWER_MS = 5_000;
/** Addresses of a name that are looked at. */
const MAX_ADDRESSES = 4;
const ACME_PROTOCOL = 'acme-tls/1';

type Finding = 'here' | 'elsewhere' | 'unknown';

/**
 * Looks whether a name leads to this gateway, as an authority will, before one is asked: failed
 * validations are limited. What cannot be known from here, because this machine does not reach its
 * own public address, say, is for the authority to find out.
 *
 * @throws AcmeError `acme-name-elsewhere` where the name has no address, or others answer under it;
 *   the reason of the signal
 */
export async function checkName(
  name: string,
  types: readonly FileChallengeType[],
  challenges: Challenges,
  check: NameCheck,
  signal: AbortSignal,
): Promise<void> {
  if (isIP(name) !== 0) return;
  const addresses = await addressesOf(name, check);
  for (const type of types) {
    for (const address of addresses) {
      signal.throwIfAborted();
      const found = await ask({ type, name, address }, challenges, check, signal);
      if (found !== 'elsewhere') return;
    }
  }
  signal.throwIfAborted();
  if (addresses.length === 0) return;
  throw new AcmeError(
    NAME_ELSEWHERE,
    `${name} points to ${addresses.join(', ')}, where another server answers`,
    { problem: 'unauthorized' },
  );
}

/** None where the resolver does not answer: then nothing is known. */
async function addressesOf(name: string, check: NameCheck): Promise<readonly string[]> {
  try {
    return (await check.lookup(name)).slice(0, MAX_ADDRESSES);
  } catch (cause) {
    if (codeOf(cause) !== 'ENOTFOUND') return [];
    throw new AcmeError(NAME_ELSEWHERE, `${name} has no address`, { problem: 'dns', cause });
  }
}

interface Question {
  readonly type: FileChallengeType;
  readonly name: string;
  readonly address: string;
}

async function ask(
  { type, name, address }: Question,
  challenges: Challenges,
  { httpPort, httpsPort }: NameCheck,
  signal: AbortSignal,
): Promise<Finding> {
  const token = randomBytes(24).toString('base64url');
  const keyAuthorization = `${token}.${randomBytes(24).toString('base64url')}`;
  const withdraw = await challenges.publish({ type, name, token, keyAuthorization });
  const patience = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
  try {
    if (type === 'http-01') {
      const path = `/.well-known/acme-challenge/${token}`;
      return await askHttp(
        { host: address, port: httpPort, path },
        name,
        keyAuthorization,
        patience,
      );
    }
    const own = await challenges.certificate(challengeName(name));
    return await askTls(address, httpsPort, name, own?.chain ?? '', patience);
  } finally {
    await withdraw();
  }
}

/** An error, and a redirect that an authority would follow, say nothing. */
function askHttp(
  place: { readonly host: string; readonly port: number; readonly path: string },
  name: string,
  expected: string,
  signal: AbortSignal,
): Promise<Finding> {
  return new Promise((resolve) => {
    const sent = request({ ...place, headers: { host: name }, agent: false, signal });
    sent.once('error', () => resolve('unknown'));
    sent.once('response', (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        body += chunk;
        if (body.length > expected.length) response.destroy();
      });
      response.once('error', () => {});
      response.once('close', () => {
        const { statusCode = 0 } = response;
        if (statusCode >= 300 && statusCode < 400) resolve('unknown');
        else resolve(statusCode === 200 && body === expected ? 'here' : 'elsewhere');
      });
    });
    sent.end();
  });
}

/** The certificate of a challenge is believed by nobody; that it is ours is what is looked at. */
function askTls(
  host: string,
  port: number,
  name: string,
  expected: string,
  signal: AbortSignal,
): Promise<Finding> {
  return new Promise((resolve) => {
    const socket = connect({
      host,
      port,
      rejectUnauthorized: false,
      ALPNProtocols: [ACME_PROTOCOL],
      servername: challengeName(name),
    });
    const done = (found: Finding): void => {
      resolve(found);
      socket.destroy();
    };
    signal.addEventListener('abort', () => done('unknown'), { once: true });
    let connected = false;
    socket.once('connect', () => (connected = true));
    // Who refuses such a handshake is a server that knows nothing of the challenge.
    socket.once('error', () => done(connected ? 'elsewhere' : 'unknown'));
    socket.once('close', () => done('unknown'));
    socket.once('secureConnect', () => {
      const { raw } = socket.getPeerCertificate();
      const own = new X509Certificate(expected).raw;
      done(own.equals(raw) ? 'here' : 'elsewhere');
    });
  });
}

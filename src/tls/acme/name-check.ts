import { randomBytes, X509Certificate } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { request } from 'node:http';
import { isIP } from 'node:net';
import { connect } from 'node:tls';
import { codeOf, ignore } from '../../kernel/error.ts';
import { AcmeError } from './acme-error.ts';
import { challengeName, type Challenges, type FileChallengeType } from './challenges.ts';

/** The means to check whether a name leads to this gateway. */
export interface NameCheck {
  /** Returns the addresses of a name; throws like `dns.lookup`. */
  readonly lookup: (name: string) => Promise<readonly string[]>;
  /** Ports that authorities connect to. */
  readonly httpPort: number;
  readonly httpsPort: number;
}

/** Uses the resolver of this machine and the ports of RFC 8555 §8.3 and RFC 8737 §3. */
export const publicNameCheck: NameCheck = {
  lookup: async (name) => (await lookup(name, { all: true })).map(({ address }) => address),
  httpPort: 80,
  httpsPort: 443,
};

/** Code of the error for a name that leads elsewhere. */
export const NAME_ELSEWHERE = 'acme-name-elsewhere';

/** Time for one address to respond. */
const ANSWER_MS = 5_000;
/** Addresses of a name that are checked. */
const MAX_ADDRESSES = 4;
const ACME_PROTOCOL = 'acme-tls/1';

type Finding = 'here' | 'elsewhere' | 'unknown';

/**
 * Checks whether a name leads to this gateway, in the way an authority does. This comes before the order,
 * because authorities limit failed validations. Some names cannot be checked from here, for example if this
 * machine cannot reach its own public address. Then only the authority can find out.
 *
 * @throws AcmeError `acme-name-elsewhere` if the name has no address, or if other servers respond under it;
 * the reason of the signal
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

/** Empty if the resolver does not respond. Then nothing is known. */
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
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
  try {
    if (type === 'http-01') {
      const path = `/.well-known/acme-challenge/${token}`;
      return await askHttp(
        { host: address, port: httpPort, path },
        name,
        keyAuthorization,
        deadline,
      );
    }
    const own = await challenges.certificate(challengeName(name));
    return await askTls(address, httpsPort, name, own?.chain ?? '', deadline);
  } finally {
    await withdraw();
  }
}

/**
 * Asks one address over HTTP. An error proves nothing, nor does a redirect that an authority would follow.
 */
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
      response.once('error', ignore);
      response.once('close', () => {
        const { statusCode = 0 } = response;
        if (statusCode >= 300 && statusCode < 400) resolve('unknown');
        else resolve(statusCode === 200 && body === expected ? 'here' : 'elsewhere');
      });
    });
    sent.end();
  });
}

/**
 * No client would trust the certificate of a challenge. Only whether it is the gateway's own matters here.
 */
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
    // A server that refuses such a handshake does not know the challenge.
    socket.once('error', () => done(connected ? 'elsewhere' : 'unknown'));
    socket.once('close', () => done('unknown'));
    socket.once('secureConnect', () => {
      const { raw } = socket.getPeerCertificate();
      const own = new X509Certificate(expected).raw;
      done(own.equals(raw) ? 'here' : 'elsewhere');
    });
  });
}

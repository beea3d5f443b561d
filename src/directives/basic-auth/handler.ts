import { createHmac, randomBytes } from 'node:crypto';
import { HttpError } from '../../http/errors.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import { clientNetwork } from '../../http/client-network.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { BasicAuthConfig } from './data.ts';
import { Attempts } from './handler/attempts.ts';
import { passwordChecks } from './handler/hash-check.ts';

/** Credentials that were right, as their digests: a page and its parts ask once. */
const MAX_REMEMBERED = 1_000;

interface Credentials {
  readonly user: string;
  readonly password: string;
}

/**
 * Lets pass who knows the password of a user (RFC 7617), and says who in `{http.auth.user.id}`. What
 * a check costs is spent in threads of their own, for unknown users too, in fair turns and not
 * without a bound for any client. What is remembered of right passwords are digests under a key that nobody has.
 */
export function basicAuth(
  { realm, accounts }: BasicAuthConfig,
  { clock }: HandlerContext,
): Handler {
  const hashes = new Map(accounts.map(({ user, hash }) => [user, hash.reveal()]));
  const anyHash = accounts[0]?.hash.reveal() ?? '';
  const attempts = new Attempts(clock);
  const key = randomBytes(32);
  const right = new Set<string>();
  const running = new Map<string, Promise<boolean>>();

  const check = async (
    given: Credentials,
    digest: string,
    client: string,
    address: string,
  ): Promise<boolean> => {
    attempts.begin(client);
    try {
      const known = hashes.get(given.user);
      const question = { password: given.password, hash: known ?? anyHash };
      const fits = await passwordChecks.matches(question, address);
      const isRight = fits && known !== undefined;
      if (isRight) passwordChecks.remember(address);
      else attempts.failed(client);
      return isRight;
    } finally {
      attempts.end(client);
      running.delete(digest);
    }
  };

  const isRight = async (given: Credentials, exchange: Exchange): Promise<boolean> => {
    const pair = `${given.user}:${given.password}`;
    const digest = createHmac('sha256', key).update(pair).digest('base64');
    if (right.has(digest)) return true;
    const client = clientNetwork(exchange.clientAddress);
    // The connections of a browser send the same at once; they wait for one check.
    const shared = running.get(`${client} ${digest}`);
    if (shared !== undefined) return shared;
    const waitMs = attempts.waitMs(client);
    if (waitMs > 0) throw tooMany(exchange, waitMs);
    const begun = check(given, `${client} ${digest}`, client, exchange.clientAddress);
    running.set(`${client} ${digest}`, begun);
    if (!(await begun)) return false;
    const [oldest] = right;
    if (right.size >= MAX_REMEMBERED && oldest !== undefined) right.delete(oldest);
    right.add(digest);
    return true;
  };

  return async (exchange, next) => {
    exchange.identity.user = null;
    const given = credentialsOf(exchange.headers.get('authorization') ?? '');
    if (given === null || !(await isRight(given, exchange))) {
      exchange.onHead((head) => {
        if (head.status === 401) head.headers.set('WWW-Authenticate', `Basic realm="${realm}"`);
        return undefined;
      });
      throw new HttpError(401, given === null ? 'no credentials' : 'wrong user or password');
    }
    exchange.identity.user = given.user;
    await next();
  };
}

function credentialsOf(field: string): Credentials | null {
  const encoded = /^basic +([A-Za-z0-9+/_-]+={0,2}) *$/i.exec(field)?.[1];
  if (encoded === undefined) return null;
  const text = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return colon === -1 ? null : { user: text.slice(0, colon), password: text.slice(colon + 1) };
}

function tooMany(exchange: Exchange, waitMs: number): HttpError {
  exchange.onHead((head) => {
    if (head.status === 429) head.headers.set('Retry-After', String(Math.ceil(waitMs / 1000)));
    return undefined;
  });
  return new HttpError(429, 'too many wrong passwords from this client');
}

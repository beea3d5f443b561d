import { type Report, error } from '../config/problem.ts';
import { list, object, type Of, withDefault } from '../config/shape.ts';
import { secret, text } from '../config/shape-values.ts';
import { addNewest } from '../kernel/collections.ts';
import { Secret } from '../kernel/secret.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue } from '../hubfile/values.ts';
import { createHmac, randomBytes } from 'node:crypto';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { utf8Field } from '../http/header-list.ts';
import { clientNetwork } from '../http/rate-limits.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { Attempts, passwordChecks } from './basic-auth/hash-check.ts';
import type { HandlerDirective } from './directive.ts';

const accountMembers = {
  /** Without a colon (RFC 7617 §2). */
  user: text('a name without a colon', isUserName),
  /** bcrypt (`$2a$…`, `$2b$…`, `$2y$…`) or argon2id in the PHC format. */
  hash: secret,
};

interface BasicAuthAccount extends Of<typeof accountMembers> {}

const members = {
  realm: withDefault(text('a realm without control characters', isRealm), 'restricted'),
  accounts: list<BasicAuthAccount>(object(accountMembers), { min: 1 }),
};

export interface BasicAuthConfig extends Of<typeof members> {
  readonly kind: 'basic_auth';
}

const BCRYPT = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
const ARGON2ID =
  /^\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,3})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}$/;
/** bcrypt's cost as an exponent: about 10 s of CPU time. */
const MAX_COST = 16;
/** Most memory of one argon2id check in KiB, and most of its iterations. */
const MAX_MEMORY = 256 * 1024;
const MAX_ITERATIONS = 64;
const MAX_PARALLELISM = 16;

/** The algorithm of a hash; null if it is not a hash, or would exceed the limits. */
function hashAlgorithm(hash: string): 'bcrypt' | 'argon2id' | null {
  const cost = BCRYPT.exec(hash)?.[1];
  if (cost !== undefined) return Number(cost) >= 4 && Number(cost) <= MAX_COST ? 'bcrypt' : null;
  const [, memory, iterations, parallelism] = (ARGON2ID.exec(hash) ?? []).map(Number);
  if (memory === undefined || iterations === undefined || parallelism === undefined) return null;
  const isModest =
    memory <= MAX_MEMORY && iterations <= MAX_ITERATIONS && parallelism <= MAX_PARALLELISM;
  return isModest && memory >= 8 * parallelism && iterations > 0 && parallelism > 0
    ? 'argon2id'
    : null;
}

function isRealm(realm: string): boolean {
  return /^\P{Cc}+$/u.test(realm);
}

/** The challenge; the realm is a quoted string (RFC 9110 §5.6.4). */
function challenge(realm: string): string {
  return `Basic realm="${utf8Field(realm.replaceAll(/["\\]/g, '\\$&'))}"`;
}

function isUserName(user: string): boolean {
  return user !== '' && !/[:\p{Cc}]/u.test(user);
}

function checkAccounts({ accounts }: BasicAuthConfig, report: Report): void {
  const known = new Map<string, object>();
  for (const each of accounts) {
    if (hashAlgorithm(each.hash.reveal()) === null) {
      const message = `the password of ${each.user} is not a bcrypt or argon2id hash, or its cost is too high`;
      const hint = 'create one with hubgate hash-password';
      report(each, error('bad-password-hash', message, hint));
    }
    const other = known.get(each.user);
    if (other !== undefined) {
      const message = `the user ${each.user} is given twice`;
      report(each, error('duplicate-user', message), { other });
    }
    known.set(each.user, each);
  }
}

const USAGE = `
basic_auth [<matcher>] [bcrypt|argon2id] [<realm>] {
    <user> <hash>
}
`;

export const basicAuth: HandlerDirective<BasicAuthConfig> = {
  data: {
    shape: () => object(members),
    establishes: () => ({ fields: [], user: true }),
    identifies: true,
    check: checkAccounts,
  },
  syntax: {
    usage: USAGE,
    summary: 'requires a user and a password (HTTP basic authentication)',
    oldNames: ['basicauth'],
    read: oneStep((cursor) => {
      const first = cursor.peek();
      // Each hash contains its algorithm, so this word of a Caddyfile has no effect.
      if (first?.text === 'bcrypt' || first?.text === 'argon2id') cursor.optional();
      const word = cursor.optional();
      if (word !== undefined && !isRealm(word.text)) {
        badValue(cursor, word, 'a realm without control characters');
      }
      cursor.block();
      const accounts = cursor.eachLine(account);
      if (accounts.length === 0 && cursor.line.block?.length === 0) {
        const hint = 'write a user and the output of hubgate hash-password';
        cursor.fail(cursor.span, 'expected-argument', `${cursor.name} needs an account`, hint);
      }
      const realm = word?.text ?? members.realm.standard;
      return { kind: 'basic_auth', realm, accounts };
    }),
  },
  compile,
};

/** Only the user of the line is ever shown. */
function account(line: Cursor): BasicAuthAccount {
  const [user] = line.line.words;
  if (user === undefined || !isUserName(user.text)) {
    return line.fail(line.span, 'bad-account', 'the name of a user must not contain a colon');
  }
  const hash = line.argument('the hash of a password');
  const extra = line.peek();
  if (extra !== undefined) {
    // Perhaps what stands there is a password with spaces.
    line.fail(extra.span, 'bad-account', 'nothing follows the hash of a password');
  }
  return line.origins.of(line.span, { user: user.text, hash: new Secret(plainHash(hash.text)) });
}

/** Files of the first Caddy 2 have a hash of bcrypt as base64. */
function plainHash(text: string): string {
  if (!/^[A-Za-z0-9+/]{60,}={0,2}$/.test(text)) return text;
  const decoded = Buffer.from(text, 'base64').toString('latin1');
  return BCRYPT.test(decoded) ? decoded : text;
}

/** Remembered credentials, as digests, so that a page and its parts cause one check. */
const MAX_REMEMBERED = 1_000;

interface Credentials {
  readonly user: string;
  readonly password: string;
}

/**
 * Admits requests with the correct password of a user (RFC 7617), whose name becomes `{http.auth.user.id}`.
 * Separate threads do the checks, also for unknown users, in fair turns and with a limit for each client.
 * Correct passwords are remembered as digests under a secret key of the process.
 */
function compile({ realm, accounts }: BasicAuthConfig, { clock }: HandlerContext): Handler {
  const hashes = new Map(accounts.map(({ user, hash }) => [user, hash.reveal()]));
  const anyHash = accounts[0]?.hash.reveal() ?? '';
  const attempts = new Attempts(clock);
  const key = randomBytes(32);
  const right = new Set<string>();
  const running = new Map<string, Promise<boolean>>();

  const check = async (
    given: Credentials,
    checkKey: string,
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
      running.delete(checkKey);
    }
  };

  const isRight = async (given: Credentials, exchange: Exchange): Promise<boolean> => {
    const pair = `${given.user}:${given.password}`;
    const digest = createHmac('sha256', key).update(pair).digest('base64');
    if (right.has(digest)) return true;
    const client = clientNetwork(exchange.clientAddress);
    // The connections of a browser send the same credentials at once; they share one check.
    const checkKey = `${client} ${digest}`;
    const shared = running.get(checkKey);
    if (shared !== undefined) return shared;
    const waitMs = attempts.waitMs(client);
    if (waitMs > 0) throw tooMany(exchange, waitMs);
    const begun = check(given, checkKey, client, exchange.clientAddress);
    running.set(checkKey, begun);
    if (!(await begun)) return false;
    addNewest(right, digest, MAX_REMEMBERED);
    return true;
  };

  return async (exchange, next) => {
    // Nobody passes by it: what is kept would be given to others without asking.
    exchange.dependsOn?.('client');
    exchange.identity.user = null;
    const given = credentialsOf(exchange.headers.get('authorization') ?? '');
    if (given === null || !(await isRight(given, exchange))) {
      exchange.onHead((head) => {
        if (head.status === 401) head.headers.set('WWW-Authenticate', challenge(realm));
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

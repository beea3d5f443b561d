import type { HandlerData } from '../../config/routes.ts';
import type { Report } from '../../config/problem.ts';
import { list, object } from '../../config/shape.ts';
import { secret, text } from '../../config/shape-values.ts';
import type { Secret } from '../../kernel/secret.ts';

export interface BasicAuthConfig {
  readonly kind: 'basic_auth';
  readonly realm: string;
  readonly accounts: readonly BasicAuthAccount[];
}

export interface BasicAuthAccount {
  /** Without a colon (RFC 7617 §2). */
  readonly user: string;
  /** bcrypt (`$2a$…`, `$2b$…`, `$2y$…`) or argon2id in the PHC format. */
  readonly hash: Secret;
}

const BCRYPT = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
const ARGON2ID =
  /^\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,3})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}$/;
/** Doublings of bcrypt's work: some 10 s of a processor. */
const MAX_COST = 16;
/** KiB that one check of argon2id may take, and how often it goes over them. */
const MAX_MEMORY = 256 * 1024;
const MAX_ITERATIONS = 64;
const MAX_PARALLELISM = 16;

/** What a text is the hash of; null for what is none, or would cost more than the bounds. */
export function hashAlgorithm(hash: string): 'bcrypt' | 'argon2id' | null {
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

/** A realm goes into a quoted string as it is. */
export function isRealm(realm: string): boolean {
  return /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/.test(realm);
}

export function isUserName(user: string): boolean {
  return user !== '' && !/[:\p{Cc}]/u.test(user);
}

const account = object<BasicAuthAccount>({
  user: text('a name without a colon', isUserName),
  hash: secret,
});

declare module '../../config/routes.ts' {
  interface HandlerKinds {
    basic_auth: BasicAuthConfig;
  }
}

export const basicAuth: HandlerData<BasicAuthConfig> = {
  shape: () =>
    object(
      {
        realm: text('a realm in plain characters, without quotes', isRealm),
        accounts: list(account, { min: 1 }),
      },
      { realm: 'restricted' },
    ),
  establishes: () => ({ fields: [], user: true }),
  identifies: true,
  check: checkAccounts,
};

function checkAccounts({ accounts }: BasicAuthConfig, report: Report): void {
  const known = new Map<string, object>();
  for (const each of accounts) {
    if (hashAlgorithm(each.hash.reveal()) === null) {
      const message = `the password of ${each.user} is no hash of bcrypt or argon2id, or one that costs too much`;
      const hint = 'make one with hubgate hash-password';
      report(each, { severity: 'error', code: 'bad-password-hash', message, hint });
    }
    const other = known.get(each.user);
    if (other !== undefined) {
      const message = `the user ${each.user} is given twice`;
      report(each, { severity: 'error', code: 'duplicate-user', message }, { other });
    }
    known.set(each.user, each);
  }
}

import { randomBytes } from 'node:crypto';
import { argon2id, bcrypt } from 'hash-wasm';

export const ALGORITHMS = ['bcrypt', 'argon2id'] as const;

/** bcrypt's work: 2 to the power of it; as long as a login may take, and no longer. */
const BCRYPT_COST = 12;
/** What OWASP recommends at least: 19 MiB, twice. */
const ARGON2ID = { memorySize: 19 * 1024, iterations: 2, parallelism: 1, hashLength: 32 };
/** Bytes of a password that bcrypt looks at. */
export const BCRYPT_BYTES = 72;

/** A hash of a password with a salt of its own, as `basic_auth` takes it. */
export async function hashPassword(
  password: string,
  algorithm: (typeof ALGORITHMS)[number],
): Promise<string> {
  const salt = randomBytes(16);
  return algorithm === 'bcrypt'
    ? bcrypt({ password, salt, costFactor: BCRYPT_COST, outputType: 'encoded' })
    : argon2id({ password, salt, ...ARGON2ID, outputType: 'encoded' });
}

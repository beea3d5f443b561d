import { Command, Option } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { type Output, readSecret } from '../terminal.ts';
import { randomBytes } from 'node:crypto';
import { argon2id, bcrypt } from 'hash-wasm';

interface HashOptions {
  readonly algorithm: (typeof ALGORITHMS)[number];
}

/** `hubgate hash-password [--algorithm bcrypt|argon2id]` */
export function hashPasswordCommand(output: Output): Command {
  return new Command('hash-password')
    .description('read a password from standard input and print its hash, for basic_auth')
    .addOption(
      new Option('-a, --algorithm <name>', 'the hash algorithm')
        .choices(ALGORITHMS)
        .default('bcrypt'),
    )
    .action(async ({ algorithm }: HashOptions) => {
      const password = (await readSecret('Password: ')) ?? '';
      if (password === '') throw new HubgateError('empty-password', 'the password is empty');
      if (algorithm === 'bcrypt' && Buffer.byteLength(password) > BCRYPT_BYTES) {
        const message = `bcrypt uses only ${BCRYPT_BYTES} bytes, and this password is longer: use --algorithm argon2id`;
        throw new HubgateError('password-too-long', message);
      }
      if (process.stdin.isTTY && (await readSecret('Once more: ')) !== password) {
        throw new HubgateError('passwords-differ', 'the two passwords differ');
      }
      output.result(await hashPassword(password, algorithm));
    });
}

export const ALGORITHMS = ['bcrypt', 'argon2id'] as const;

/** bcrypt's cost is 2 to this power. It is as high as the time of a login allows. */
const BCRYPT_COST = 12;
/** OWASP's minimum recommendation: 19 MiB, two iterations. */
const ARGON2ID = { memorySize: 19 * 1024, iterations: 2, parallelism: 1, hashLength: 32 };
/** Bytes of a password that bcrypt uses. */
export const BCRYPT_BYTES = 72;

/** A hash of a password with its own salt, in a format that `basic_auth` accepts. */
export async function hashPassword(
  password: string,
  algorithm: (typeof ALGORITHMS)[number],
): Promise<string> {
  const salt = randomBytes(16);
  return algorithm === 'bcrypt'
    ? bcrypt({ password, salt, costFactor: BCRYPT_COST, outputType: 'encoded' })
    : argon2id({ password, salt, ...ARGON2ID, outputType: 'encoded' });
}

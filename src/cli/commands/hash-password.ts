import { Command, Option } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import type { Output } from '../output.ts';
import { ALGORITHMS, BCRYPT_BYTES, hashPassword } from '../password-hash.ts';
import { readSecret } from '../secret-input.ts';

interface HashOptions {
  readonly algorithm: (typeof ALGORITHMS)[number];
}

/** `hubgate hash-password [--algorithm bcrypt|argon2id]` */
export function hashPasswordCommand(output: Output): Command {
  return new Command('hash-password')
    .description('read a password from standard input and print its hash, for basic_auth')
    .addOption(
      new Option('-a, --algorithm <name>', 'how it is hashed')
        .choices(ALGORITHMS)
        .default('bcrypt'),
    )
    .action(async ({ algorithm }: HashOptions) => {
      const password = (await readSecret('Password: ')) ?? '';
      if (password === '') throw new HubgateError('empty-password', 'there is no password');
      if (algorithm === 'bcrypt' && Buffer.byteLength(password) > BCRYPT_BYTES) {
        const message = `bcrypt looks at ${BCRYPT_BYTES} bytes, and this password is longer: use --algorithm argon2id`;
        throw new HubgateError('password-too-long', message);
      }
      if (process.stdin.isTTY && (await readSecret('Once more: ')) !== password) {
        throw new HubgateError('passwords-differ', 'the two passwords differ');
      }
      output.result(await hashPassword(password, algorithm));
    });
}

import { parentPort } from 'node:worker_threads';
import { argon2Verify, bcryptVerify } from 'hash-wasm';
import type { Question } from './hash-check.ts';

/** bcrypt uses only this many bytes, in every implementation. */
const BCRYPT_BYTES = 72;

parentPort?.on('message', (question: Question) => {
  void check(question).then((answer) => parentPort?.postMessage(answer));
});

async function check({ password, hash }: Question): Promise<boolean> {
  if (password === '') return false;
  try {
    if (hash.startsWith('$argon2id$')) return await argon2Verify({ password, hash });
    const bytes = Buffer.from(password, 'utf8').subarray(0, BCRYPT_BYTES);
    return await bcryptVerify({ password: bytes, hash });
  } catch {
    // A hash that the library rejects matches no password.
    return false;
  }
}

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { readBoltFile } from '../../../src/cli/bolt-file.ts';
import { HubgateError } from '../../../src/kernel/error.ts';

const whole = gunzipSync(
  readFileSync(new URL('../../e2e/fixtures/reference-history.db.gz', import.meta.url)),
);
const directory = mkdtempSync(join(tmpdir(), 'hubgate-bolt-'));
after(() => rmSync(directory, { recursive: true }));
const file = join(directory, 'history.db');

function valuesOf(bytes: Buffer): readonly Buffer[] {
  writeFileSync(file, bytes);
  return [...readBoltFile(file, 'updates')];
}

describe('a bolt file', () => {
  it('is read in the order of its keys', () => {
    const ids = valuesOf(whole).map((value) => JSON.parse(value.toString()).ID);
    assert.equal(ids.length, 40);
    assert.deepEqual(ids.slice(0, 4), ['urn:first', 'urn:private', 'urn:large', 'urn:n:0']);
  });

  it('is read from the other head if one was only partly written', () => {
    for (const head of [0, 4096]) {
      const torn = Buffer.from(whole);
      torn.fill(0xff, head + 16, head + 60);
      // The older of the two heads knows an update less.
      assert.ok(valuesOf(torn).length >= 39, String(head));
    }
  });

  it('is refused if its pages form a loop', () => {
    const bytes = Buffer.from(whole);
    for (let page = 0; page < bytes.length; page += 4096) {
      if (bytes.readUInt16LE(page + 8) !== 1) continue;
      bytes.writeBigUInt64LE(BigInt(page / 4096), page + 16 + 8);
    }
    assert.throws(() => valuesOf(bytes), { message: /form a loop/ });
  });

  it('is refused in bounded time if it is truncated or damaged', () => {
    const damages = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { maxLength: 40 });
    fc.assert(
      fc.property(damages, fc.nat(whole.length), (changes, length) => {
        const bytes = Buffer.from(whole.subarray(0, length % 3 === 0 ? length : undefined));
        for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
        try {
          assert.ok(valuesOf(bytes).length < 100_000);
        } catch (error) {
          assert.ok(error instanceof HubgateError, String(error));
          assert.equal(error.code, 'invalid-argument');
        }
      }),
      { numRuns: 150 },
    );
  });
});

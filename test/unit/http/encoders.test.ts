import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import {
  brotli,
  type Encoder,
  type Encoding,
  gzip,
  hasRoomFor,
  MAX_ENCODER_BYTES,
  startEncoder,
  zstd,
} from '../../../src/http/encoders.ts';

describe('the encoders of all responses', () => {
  it('occupy limited memory, and give it back when they end or are destroyed', async () => {
    const all: Encoder[] = [];
    while (hasRoomFor(brotli)) all.push(startEncoder(brotli));
    assert.equal(all.length, Math.floor(MAX_ENCODER_BYTES / brotli.bytes));
    const [one, other] = all;
    assert.ok(one !== undefined && other !== undefined);
    one.resume().end();
    await once(one, 'close');
    assert.ok(hasRoomFor(brotli));
    all.push(startEncoder(brotli));
    assert.ok(!hasRoomFor(brotli));
    for (const encoder of all) encoder.destroy();
    await once(other, 'close');
    assert.ok(hasRoomFor({ ...brotli, bytes: MAX_ENCODER_BYTES }));
  });

  it('look back at most 128 KiB', async () => {
    const zstandard = zstd(3);
    const kinds: readonly Encoding[] = [
      gzip(9),
      brotli,
      ...(zstandard === null ? [] : [zstandard]),
    ];
    const distant = randomBytes(200 * 1024);
    for (const kind of kinds) {
      const encoder = kind.create();
      encoder.write(distant);
      encoder.end(distant);
      const encoded = Buffer.concat(await encoder.toArray());
      assert.ok(encoded.length > distant.length * 1.9, `${encoded.length} bytes`);
    }
  });
});

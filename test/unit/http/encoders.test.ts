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
  MAX_NETWORK_BYTES,
  startEncoder,
  zstd,
} from '../../../src/http/encoders.ts';

describe('the encoders of all responses', () => {
  it('occupy limited memory, half of it for one network, and give it back when they end or are destroyed', async () => {
    const all: Encoder[] = [];
    const fill = (client: string): number => {
      const before = all.length;
      while (hasRoomFor(brotli, client)) all.push(startEncoder(brotli, client));
      return all.length - before;
    };
    assert.equal(fill('192.0.2.1'), Math.floor(MAX_NETWORK_BYTES / brotli.bytes));
    assert.equal(fill('192.0.2.200'), 0);
    const rest = Math.floor(MAX_ENCODER_BYTES / brotli.bytes) - all.length;
    assert.equal(fill('198.51.100.1') + fill('203.0.113.1'), rest);
    const [one, other] = all;
    assert.ok(one !== undefined && other !== undefined);
    one.resume().end();
    await once(one, 'close');
    assert.equal(fill('203.0.113.1'), 1);
    for (const encoder of all) encoder.destroy();
    await once(other, 'close');
    assert.ok(hasRoomFor({ ...brotli, bytes: MAX_NETWORK_BYTES }, '192.0.2.1'));
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

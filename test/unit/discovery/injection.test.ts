import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import {
  brotliCompressSync,
  brotliDecompressSync,
  createGzip,
  deflateRawSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  inflateSync,
} from 'node:zlib';
import {
  canDecode,
  injecting,
  MAX_ENCODED_BYTES,
  MAX_RATIO,
} from '../../../src/discovery/injection.ts';

const MB = 1024 * 1024;
const SCRIPT = '<script src=/live.js></script>';

/** Where a page goes, and what has come of it. */
function receiver(): Writable & { readonly chunks: Buffer[] } {
  const chunks: Buffer[] = [];
  const body = new Writable({
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      done();
    },
  });
  return Object.assign(body, { chunks });
}

function pageOf(bytes: number): Buffer {
  const head = Buffer.from('<!doctype html><html><head><title>t</title></head><body>');
  return Buffer.concat([head, Buffer.alloc(bytes, 'x')]);
}

const CLIENT = '192.0.2.1';
const inject = (encoding: string) => injecting(encoding, CLIENT, () => () => Buffer.from(SCRIPT));

describe('script injection into an encoded page', () => {
  for (const [encoding, encode, decode] of [
    ['gzip', gzipSync, gunzipSync],
    ['br', brotliCompressSync, brotliDecompressSync],
    ['deflate', deflateSync, inflateSync],
    // Without the zlib format, as some apps send it.
    ['deflate', deflateRawSync, inflateSync],
  ] as const) {
    it(`yields a complete page in ${encoding} (${encode.name}) that repeats its text many times`, async () => {
      const page = pageOf(3 * MB);
      const body = receiver();
      inject(encoding)(body).end(encode(page));
      await once(body, 'finish');
      const said = decode(Buffer.concat(body.chunks)).toString();
      assert.equal(said, page.toString().replace('</head>', `${SCRIPT}</head>`));
    });

    it(`cuts off a page in ${encoding} that decodes to far more than its size`, async () => {
      const page = pageOf(60 * MB);
      const encoded = encode(page);
      assert.ok(page.length > encoded.length * MAX_RATIO);
      const body = receiver();
      body.on('error', () => {});
      const written = inject(encoding)(body);
      written.end(encoded);
      await Promise.all([once(body, 'close'), once(written, 'close')]);
      assert.equal(body.writableFinished, false);
    });
  }

  it('cuts off no page because of its length if that was not declared', async () => {
    const head = Buffer.from('<!doctype html><html><head><title>t</title></head><body>');
    // Honest text: numbers, which a coding makes smaller by a few times.
    let number = 0;
    const lines = (): Buffer =>
      Buffer.from(Array.from({ length: 65_536 }, () => `${(number += 7919)} `).join(''));
    const total = 80 * MB;
    const body = receiver();
    const written = inject('gzip')(body);
    const packed = createGzip({ level: 1 });
    packed.pipe(written);
    const sent = createHash('sha256').update(
      head.toString().replace('</head>', `${SCRIPT}</head>`),
    );
    packed.write(head);
    for (let bytes = 0; bytes < total; ) {
      const piece = lines();
      bytes += piece.length;
      sent.update(piece);
      if (!packed.write(piece)) await once(packed, 'drain');
    }
    packed.end();
    await once(body, 'finish');
    const said = gunzipSync(Buffer.concat(body.chunks));
    assert.ok(said.length > 64 * MB);
    assert.equal(createHash('sha256').update(said).digest('hex'), sent.digest('hex'));
  });

  it('is not attempted if the page is known to be long', () => {
    assert.ok(canDecode('gzip', null, CLIENT));
    assert.ok(canDecode('gzip', MAX_ENCODED_BYTES, CLIENT));
    assert.ok(!canDecode('gzip', MAX_ENCODED_BYTES + 1, CLIENT));
    assert.ok(canDecode('identity', MAX_ENCODED_BYTES + 1, CLIENT));
    assert.ok(!canDecode('compress', 1, CLIENT));
  });
});

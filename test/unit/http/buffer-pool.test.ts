import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { PassThrough, type Writable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { bufferPool, LEAST_POOLED_BYTES } from '../../../src/http/buffer-pool.ts';
import { portOf } from './exchange-server.ts';

const KIB = 1024;
/** More than the pool keeps of any size. */
const MANY = 200;

/** A connection whose peer reads everything. */
async function connection(test: TestContext): Promise<net.Socket> {
  const server = net.createServer((socket) => socket.resume().on('error', () => {}));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = net.connect(portOf(server), '127.0.0.1');
  await once(socket, 'connect');
  test.after(() => {
    socket.destroy();
    server.close();
  });
  return socket;
}

function pass(piece: Buffer, body: Writable): Promise<void> {
  return new Promise((resolve, reject) => {
    bufferPool.pass(piece, body, (error) => (error instanceof Error ? reject(error) : resolve()));
  });
}

function copyOf(bytes: number): Buffer {
  return bufferPool.copy(Buffer.alloc(bytes, 'x'), 0, bytes);
}

describe('the pool of buffers', () => {
  it('uses a buffer again when its bytes have been sent, for pieces of about its size', async (test) => {
    const socket = await connection(test);
    for (const size of [LEAST_POOLED_BYTES, 16 * KIB, 20 * KIB, 64 * KIB, 100 * KIB, 128 * KIB]) {
      const piece = copyOf(size);
      const { buffer } = piece;
      assert.equal(piece.length, size);
      assert.ok(buffer.byteLength <= 128 * KIB);
      await pass(piece, socket);
      const next = copyOf(size);
      assert.equal(next.buffer, buffer);
      await pass(next, socket);
    }
  });

  it('joins pieces in their order', () => {
    const pieces = ['ab', 'c'.repeat(10_000), 'd'].map((text) => Buffer.from(text));
    const joined = bufferPool.join(pieces, 10_003);
    assert.ok(joined.equals(Buffer.concat(pieces)));
  });

  it('does not use a buffer again before all its parts have been sent and no further one comes', async (test) => {
    const socket = await connection(test);
    const piece = copyOf(64 * KIB);
    const { buffer } = piece;
    const parts = [0, 1, 2].map((i) => piece.subarray(i * 20 * KIB, (i + 1) * 20 * KIB));
    const [first = piece, second = piece, third = piece] = parts;
    await pass(first, socket);
    await pass(second, socket);
    assert.notEqual(copyOf(64 * KIB).buffer, buffer);
    const last = pass(third, socket);
    bufferPool.passedOn(piece);
    assert.notEqual(copyOf(64 * KIB).buffer, buffer);
    await last;
    assert.equal(copyOf(64 * KIB).buffer, buffer);
  });

  it('leaves a piece to a body that may keep it, or that fails', async (test) => {
    const kept = copyOf(64 * KIB);
    await pass(kept, new PassThrough().resume());
    assert.notEqual(copyOf(64 * KIB).buffer, kept.buffer);
    const socket = await connection(test);
    const lost = copyOf(64 * KIB);
    socket.destroy();
    await assert.rejects(pass(lost, socket));
    assert.equal(lost.toString('latin1'), 'x'.repeat(64 * KIB));
    assert.notEqual(copyOf(64 * KIB).buffer, lost.buffer);
  });

  it('keeps a limited number of unused buffers, and returns the others to the system at once', async (test) => {
    const socket = await connection(test);
    const pieces = Array.from({ length: MANY }, () => copyOf(128 * KIB));
    const memories = pieces.map(({ buffer }) => buffer);
    await Promise.all(pieces.map((piece) => pass(piece, socket)));
    const kept = memories.filter(({ byteLength }) => byteLength > 0);
    assert.equal(kept.length * 128 * KIB, 1.5 * KIB * KIB);
  });

  it('has nothing to do with small pieces', () => {
    const before = bufferPool.made;
    for (let i = 0; i < MANY; i += 1) copyOf(LEAST_POOLED_BYTES - 1);
    assert.equal(bufferPool.made, before);
  });
});

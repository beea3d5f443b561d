import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sessionReads } from '../../../src/http/body-memory.ts';
import { bufferPool } from '../../../src/http/buffer-pool.ts';
import { READ_BYTES, upstreamReads } from '../../../src/proxy/upstream-reads.ts';
import { openTunnel, tunnelOrigin, useEnd } from '../../support/raw-tunnel.ts';
import { proxyTo } from './gateway.ts';

const MB = 1024 * 1024;
const TOTAL = 16 * MB;
/** What a tunnel holds at a time in both directions, the wait for the system included. */
const ENOUGH = 64;
/** A read brings up to 128 KiB. How much is there depends on how busy the machine is. */
const MAX_READS_PER_MB = 64;
/** The heads are copied too. */
const MAX_COPIED = 1.01;

describe('the memory of a tunnel', () => {
  for (const { name, isHttp2, directions } of [
    { name: 'HTTP/1.1', isHttp2: false, directions: 2 },
    // Node itself reads from an HTTP/2 connection.
    { name: 'an extended CONNECT', isHttp2: true, directions: 1 },
  ]) {
    it(`is reused, with few reads, and each byte is copied once, over ${name}`, async (test) => {
      const largest = 128 * 1024;
      const origins: Promise<number>[] = [];
      await using upstream = await tunnelOrigin((end) => {
        origins.push(useEnd(end, { total: TOTAL, sends: 'down', receives: 'up', largest }));
      });
      await using gateway = await proxyTo([upstream.url]);
      const port = isHttp2 ? gateway.http2 : gateway.http1;
      const before = bufferPool.made;
      const freedBefore = sessionReads.freedBytes;
      let [reads, copied] = [0, 0];
      const { copy } = Buffer.prototype;
      const counting = test.mock.method(
        Buffer.prototype,
        'copy',
        function (this: Buffer, ...all: Parameters<typeof copy>): number {
          const bytes = Number(Reflect.apply(copy, this, all));
          // The buffer into which all these connections read.
          if (this.length === READ_BYTES) {
            reads += 1;
            copied += bytes;
          }
          return bytes;
        },
      );
      const client = await openTunnel(port, '/', { isTls: false, isHttp2 });
      const end = { total: TOTAL, sends: 'up', receives: 'down', largest };
      assert.equal(await useEnd(client, end), TOTAL);
      assert.deepEqual(await Promise.all(origins), [TOTAL]);
      counting.mock.restore();
      assert.deepEqual(gateway.faults, []);
      const passed = directions * TOTAL;
      assert.ok(copied >= passed, `${copied} bytes of ${passed} were read into the shared memory`);
      assert.ok(copied <= MAX_COPIED * passed, `${copied} bytes copied of ${passed}`);
      const perMb = reads / (passed / MB);
      assert.ok(perMb <= MAX_READS_PER_MB, `${perMb} reads for each MB`);
      const made = bufferPool.made - before;
      assert.ok(made <= ENOUGH, `${made} buffers made for ${passed / READ_BYTES}`);
      assert.equal(upstreamReads.waiting, 0);
      const freed = (sessionReads.freedBytes - freedBefore) / TOTAL;
      if (isHttp2) assert.ok(freed > 0.4, `${freed} of what the session has read`);
    });
  }
});

import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { describe, it } from 'node:test';
import { MAX_STOPPED_BYTES, StoppedParsers } from '../../../src/server/pipelined-requests.ts';

/** As much as a record of TLS holds. */
const RECORD = Buffer.alloc(16 * 1024, 'x');

describe('data that arrives while a parser is stopped', () => {
  it('is given to the next parser in order, once, and separately for each connection', () => {
    const stopped = new StoppedParsers();
    const [one, other] = [new Duplex(), new Duplex()];
    stopped.begin(one, Buffer.from('a'));
    stopped.begin(other, Buffer.from('1'));
    assert.ok(stopped.add(one, Buffer.from('b')));
    assert.equal(stopped.take(one)?.toString(), 'ab');
    assert.equal(stopped.take(one), null);
    assert.equal(stopped.has(one), false);
    assert.equal(stopped.take(other)?.toString(), '1');
  });

  it('is kept up to 128 KiB, and discarded entirely beyond that', () => {
    const stopped = new StoppedParsers();
    const socket = new Duplex();
    stopped.begin(socket, RECORD);
    let kept = RECORD.length;
    while (stopped.add(socket, RECORD)) kept += RECORD.length;
    assert.equal(kept, MAX_STOPPED_BYTES);
    assert.equal(kept, 128 * 1024);
    assert.equal(stopped.has(socket), false);
    assert.equal(stopped.take(socket), null);
  });

  it('is kept up to a limit that exceeds what Node delivers in one read over TLS', () => {
    // Node reads 64 KiB at a time, and what was left of a record comes before them.
    assert.ok(MAX_STOPPED_BYTES >= 64 * 1024 + RECORD.length);
  });
});

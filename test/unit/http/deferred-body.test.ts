import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  DeferredBody,
  discarding,
  isUnwanted,
  MAX_DISCARDED_BYTES,
  MAX_DISCARDING_MS,
  MAX_UNWANTED_MS,
} from '../../../src/http/deferred-body.ts';

const response = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() });

describe('the content of a response whose client gets none', () => {
  it('ends the response after a second, and stops a silent source after a longer time', (test) => {
    test.mock.timers.enable({ apis: ['setTimeout'] });
    const real = response();
    const content = discarding(real);
    test.mock.timers.tick(MAX_DISCARDING_MS);
    assert.deepEqual([real.writableEnded, content.destroyed], [true, false]);
    // A failure of the source matters to nobody from now on.
    assert.equal(isUnwanted(content), true);
    test.mock.timers.tick(MAX_UNWANTED_MS - MAX_DISCARDING_MS);
    assert.deepEqual([content.destroyed, isUnwanted(content)], [true, true]);
  });

  it('stops a source that sends much, also through a body that waited for its destination', async () => {
    const real = response();
    const waiting = new DeferredBody();
    waiting.write(Buffer.alloc(MAX_DISCARDED_BYTES));
    waiting.decide(discarding(real));
    await nextTurn();
    assert.equal(waiting.destroyed, false);
    waiting.write('x');
    while (!waiting.destroyed) await nextTurn();
    assert.deepEqual([isUnwanted(waiting), real.writableEnded], [true, true]);
  });

  it('ends with its source', async () => {
    const real = response();
    const content = discarding(real);
    content.end('some content');
    while (!real.writableFinished) await nextTurn();
    assert.deepEqual([isUnwanted(content), content.writableFinished], [false, true]);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';
import { traceRequest } from '../../../src/http/trace-context.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';

function trace(...values: readonly string[]) {
  const headers = new HeaderList();
  for (const value of values) headers.append('Traceparent', value);
  headers.append('tracestate', 'vendor=1');
  return { ...traceRequest(headers), headers };
}

describe('traceparent (W3C Trace Context)', () => {
  it('continues a valid trace with a new parent id (§3.3)', () => {
    const { traceId, spanId, parentId, flags, headers } = trace(`00-${TRACE}-${PARENT}-01`);
    assert.deepEqual([traceId, parentId, flags], [TRACE, PARENT, '01']);
    assert.match(spanId, /^[0-9a-f]{16}$/);
    assert.notEqual(spanId, PARENT);
    assert.deepEqual(headers.getAll('traceparent'), [`00-${TRACE}-${spanId}-01`]);
    assert.equal(headers.get('tracestate'), 'vendor=1');
  });

  it('keeps the decision not to sample, and only the flags that are known', () => {
    assert.equal(trace(`00-${TRACE}-${PARENT}-00`).flags, '00');
    assert.equal(trace(`00-${TRACE}-${PARENT}-ff`).flags, '03');
  });

  it('reads the known part of a later version (§3.2.4)', () => {
    assert.equal(trace(`cc-${TRACE}-${PARENT}-01-more`).traceId, TRACE);
  });

  it('starts a new trace, without tracestate, if it is absent, invalid or duplicated', () => {
    for (const values of [
      [],
      [''],
      [`ff-${TRACE}-${PARENT}-01`],
      [`00-${TRACE}-${PARENT}-01-more`],
      [`00-${TRACE.toUpperCase()}-${PARENT}-01`],
      [`00-${'0'.repeat(32)}-${PARENT}-01`],
      [`00-${TRACE}-${'0'.repeat(16)}-01`],
      [`00-${TRACE}-${PARENT}`],
      [`00-${TRACE}-${PARENT}-01`, `00-${TRACE}-${PARENT}-01`],
    ]) {
      const { traceId, parentId, headers } = trace(...values);
      assert.match(traceId, /^[0-9a-f]{32}$/);
      assert.notEqual(traceId, TRACE, values.join());
      assert.equal(parentId, null);
      assert.equal(headers.get('tracestate'), undefined);
    }
  });

  it('sends the ids of a new trace, and never uses one twice', () => {
    const ids = new Set<string>();
    for (let i = 0; i < 2000; i += 1) {
      const { traceId, spanId, headers } = trace();
      assert.match(traceId, /^[0-9a-f]{32}$/);
      assert.match(spanId, /^[0-9a-f]{16}$/);
      assert.deepEqual(headers.getAll('traceparent'), [`00-${traceId}-${spanId}-01`]);
      ids.add(traceId).add(spanId);
    }
    assert.equal(ids.size, 4000);
  });
});

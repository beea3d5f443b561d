import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  parseEventStream,
  type ReceivedEvent,
  type StreamPosition,
} from '../../../src/cli/hub-request.ts';

async function read(
  chunks: readonly string[],
): Promise<{ events: readonly ReceivedEvent[]; position: StreamPosition }> {
  const position: StreamPosition = { lastEventId: '', retryMs: null };
  const events: ReceivedEvent[] = [];
  const bytes = async function* (): AsyncGenerator<Buffer> {
    for (const chunk of chunks) yield Buffer.from(chunk, 'latin1');
  };
  for await (const event of parseEventStream(bytes(), position)) events.push(event);
  return { events, position };
}

describe('an event stream, as read by hubgate subscribe (WHATWG HTML §9.2.6)', () => {
  const stream = 'id: 1\r\ndata: one\r\ndata\r\n\r\n:\nevent: a\ndata:two\n\rdata: x\r\r';
  const expected = [
    { id: '1', type: 'message', data: 'one\n' },
    { id: '1', type: 'a', data: 'two' },
    { id: '1', type: 'message', data: 'x' },
  ];

  it('is read in the same way, wherever its chunks end', async () => {
    for (let at = 0; at <= stream.length; at += 1) {
      const { events } = await read([stream.slice(0, at), stream.slice(at), 'data: y\n']);
      assert.deepEqual(events, expected, `cut at ${at}`);
    }
    assert.deepEqual((await read(Array.from(`${stream}:\n`))).events, expected);
  });

  it('can have a character split across two chunks', async () => {
    const { events } = await read(['data: \xc3', '\xa9\n\n']);
    assert.equal(events[0]?.data, 'é');
  });

  it('never causes a reconnection without a delay', async () => {
    for (const [value, waited] of [
      ['0', 100],
      ['5', 100],
      ['2500', 2500],
      ['9'.repeat(30), 2 ** 31 - 1],
      ['soon', null],
      ['-1', null],
    ] as const) {
      assert.equal((await read([`retry: ${value}\n`])).position.retryMs, waited);
    }
  });

  it('is continued after the last complete event', async () => {
    const { events, position } = await read(['id: 1\ndata: a\n\nid: 2\ndata: b\n']);
    assert.deepEqual([events.length, position.lastEventId], [1, '1']);
  });

  it('may have one long line in many chunks, but not one without end', async () => {
    const part = 'x'.repeat(64 * 1024);
    const { events } = await read(['data: ', ...Array<string>(100).fill(part), '\n\n']);
    assert.equal(events[0]?.data.length, 100 * part.length);
    await assert.rejects(read(['data: ', ...Array<string>(1024).fill(part)]), /exceeded/);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { PreparedUpdate } from '../../../src/hub/event-stream.ts';
import { Budget, TURN_STEPS } from '../../../src/kernel/scheduler.ts';
import type { Update } from '../../../src/hub/update.ts';
import { encodeEvent } from '../../support/without-pauses.ts';

const plain: Update = {
  id: 'b',
  topics: ['t'],
  data: 'Hello World',
  private: false,
  type: null,
  retry: null,
};

describe('encoding an update as a server-sent event', () => {
  it('B-164: writes a minimal update as id and data', () => {
    assert.equal(encodeEvent(plain).toString(), 'id: b\ndata: Hello World\n\n');
  });

  it('B-160 A-61: writes event, retry, id and one data line for each line', () => {
    const event = encodeEvent({
      ...plain,
      id: 'custom-id',
      type: 'type',
      retry: '5',
      data: 'several\nlines\rwith\r\neol',
    });
    assert.equal(
      event.toString(),
      'event: type\nretry: 5\nid: custom-id\ndata: several\ndata: lines\ndata: with\ndata: eol\n\n',
    );
  });

  it('A-58 A-59: writes one empty data line if there is no data', () => {
    assert.equal(encodeEvent({ ...plain, data: '' }).toString(), 'id: b\ndata: \n\n');
  });

  it('A-62: keeps a final line end as an empty line', () => {
    assert.equal(encodeEvent({ ...plain, data: 'x\n' }).toString(), 'id: b\ndata: x\ndata: \n\n');
  });

  it('A-63 A-64 A-66: any data passes unchanged through an independent parser, and only as data', () => {
    const text = fc.string({
      unit: fc.oneof(
        fc.constantFrom('\n', '\r', ':', ' ', '\0', 'id: x', 'event:'),
        fc.string({ unit: 'grapheme' }),
      ),
    });
    fc.assert(
      fc.property(text, (data) => {
        const events = parse(encodeEvent({ ...plain, data }).toString());
        assert.deepEqual(events, [
          { id: 'b', event: undefined, data: data.replace(/\r\n?/g, '\n') },
        ]);
      }),
      { seed: 1, numRuns: 2000 },
    );
  });
});

describe('an event of many lines', () => {
  const encode = (
    data: string,
  ): { readonly event: Buffer; readonly scheduler: readonly number[] } => {
    const budget = new Budget(TURN_STEPS);
    const prepared = new PreparedUpdate({ ...plain, data }, 'https://hub.invalid/');
    const scheduler: number[] = [];
    for (;;) {
      const event = prepared.event(budget);
      scheduler.push(TURN_STEPS - budget.left);
      budget.left = TURN_STEPS;
      if (event !== null) return { event, scheduler };
    }
  };

  it('is encoded in slices of similar length', () => {
    const { event, scheduler } = encode('\n'.repeat(1024 * 1024));
    assert.equal(event.length, 'id: b\n'.length + (1024 * 1024 + 1) * 'data: \n'.length + 1);
    assert.ok(scheduler.length > 30, `${scheduler.length} slices`);
    assert.ok(Math.max(...scheduler) < TURN_STEPS * 2);
  });

  it('is encoded to the same bytes, even if a piece ends inside a line end or a character', () => {
    for (const unit of ['\r\n', '\r', '\n', '🙂', 'é', 'a\r\n🙂']) {
      for (const before of ['', 'x', 'xx', 'xxx']) {
        const data = before + unit.repeat(20_000);
        assert.equal(encode(data).event.toString(), eventWith(data));
      }
    }
    // Whatever stands around the end of the first piece, at 8192.
    const units = ['\r', '\n', 'a', 'é', '🙂'];
    for (const text of units.flatMap((a) => units.flatMap((b) => units.map((c) => a + b + c)))) {
      for (let length = 8188; length <= 8192; length += 1) {
        const data = `${'a'.repeat(length)}${text}z`;
        assert.equal(
          encode(data).event.toString(),
          eventWith(data),
          JSON.stringify([length, text]),
        );
      }
    }
  });
});

function eventWith(data: string): string {
  const lines = data.split(/\r\n|\r|\n/).map((line) => `data: ${line}\n`);
  return `id: b\n${lines.join('')}\n`;
}

function parse(stream: string): EventSourceMessage[] {
  const events: EventSourceMessage[] = [];
  createParser({ onEvent: (event) => events.push(event) }).feed(stream);
  return events;
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toHistoryLine } from '../../../src/cli/commands/history.ts';
import { printable } from '../../../src/cli/terminal.ts';
import { screenOf } from '../../../src/cli/top/screen.ts';

const ESCAPES = '\u009b2J\u001b[2J\u0007\u007f\r';

describe('text from clients on a terminal', () => {
  it('has no control characters except tabs and line ends', () => {
    assert.equal(printable(`a\tb\n${ESCAPES}é`), 'a\tb\n\\u009b2J\\u001b[2J\\u0007\\u007f\\u000dé');
  });

  it('is still the same JSON', () => {
    const json = JSON.stringify({ text: ESCAPES });
    assert.deepEqual(JSON.parse(printable(json)), { text: ESCAPES });
    assert.match(printable(json), /^\P{Cc}+$/u);
  });

  it('is printed safely in the history and in `hubgate top`', () => {
    const update = {
      id: 'a',
      topics: [ESCAPES],
      data: ESCAPES,
      private: false,
      type: null,
      retry: null,
    };
    const line = toHistoryLine({ at: 0, update });
    assert.match(line, /^\P{Cc}+$/u);
    assert.deepEqual(JSON.parse(line).topics, [ESCAPES]);
    const overview: Parameters<typeof screenOf>[0] = {
      version: '1',
      ready: false,
      fault: ESCAPES,
      upSeconds: 1,
      processes: 1,
      configuration: {
        generation: 1,
        lastLoadSucceeded: true,
        lastSuccess: '',
        loads: 1,
        failures: 0,
      },
      process: { processors: 0, memoryBytes: 0, loopDelayP99: null },
      connections: { open: 0, accepted: 0, handshakes: 0, resumed: null },
      sites: [],
      upstreams: [],
      hubs: [],
      cache: null,
      outboxes: [],
      slowest: [{ id: `${ESCAPES}\n`, hub: 'h', bytes: 1, waitingMs: 1 }],
    };
    for (const each of screenOf(overview, 'localhost', { columns: null, coloured: false }))
      assert.match(each, /^\P{Cc}*$/u);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import type { Overview } from '../../../src/cli/top/overview.ts';
import { screenOf } from '../../../src/cli/top/screen.ts';

const OVERVIEW: Overview = {
  version: '1.2.3',
  ready: false,
  fault: 'the certificate of example.com is not issued yet',
  upSeconds: 93_600,
  processes: 4,
  configuration: {
    generation: 3,
    lastLoadSucceeded: true,
    lastSuccess: '2026-11-23T04:00:00.000Z',
    loads: 3,
    failures: 0,
  },
  process: { processors: 1.5, memoryBytes: 5e8, loopDelayP99: 0.25 },
  connections: { open: 12_000, accepted: 350.5, handshakes: 20, resumed: 0.5 },
  sites: [
    { site: 'https://example.com', requests: 1e4, errors: 0, inFlight: 3, mean: 0.25, p99: 2.5 },
  ],
  upstreams: [
    {
      ...{ upstream: 'localhost:3000', healthy: true, answers: 1e4, inFlight: 3 },
      ...{ mean: 0.0004, failures: 0, retries: 0.1 },
    },
  ],
  hubs: [
    {
      ...{ hub: 'news', streams: 1e5, updates: 12.5, deliveries: 1e6, bytes: 3e8 },
      ...{ longestQueueBytes: 1e6, longestLag: 1234, refusals: 0 },
    },
  ],
  cache: null,
  outboxes: [
    {
      ...{ hub: 'news', reading: true, published: 12.5, rows: 10_000, lag: 1234 },
      ...{ deadLetters: 3, failures: 0.25 },
    },
  ],
  slowest: [],
};

const words = (lines: readonly string[]): string[] => lines.join(' ').split(/\s+/).filter(Boolean);

describe('the screen of hubgate top', () => {
  for (const columns of [60, 80]) {
    it(`has no line longer than ${columns} columns, and shows everything that a wide one shows`, () => {
      const lines = screenOf(OVERVIEW, '127.0.0.1:2019', { columns, coloured: false });
      for (const line of lines) assert.ok(line.length <= columns, line);
      const wide = screenOf(OVERVIEW, '127.0.0.1:2019', { columns: null, coloured: false });
      assert.deepEqual(new Set(words(lines)), new Set(words(wide)));
    });
  }

  it('breaks lines at the same places with colours', () => {
    const [plain, coloured] = [false, true].map((one) =>
      screenOf(OVERVIEW, '127.0.0.1:2019', { columns: 60, coloured: one }),
    );
    assert.deepEqual(
      coloured?.map((line) => stripVTControlCharacters(line)),
      plain,
    );
  });

  it('has a line for each outbox', () => {
    const text = screenOf(OVERVIEW, 'localhost', { columns: null, coloured: false }).join('\n');
    assert.match(
      text,
      /outbox of news read here, rows \S+\/s, waiting 10000, lag 20m 34s, dead letters 3/,
    );
  });

  it('writes durations without an exponent', () => {
    const text = screenOf(OVERVIEW, 'localhost', { columns: null, coloured: false }).join('\n');
    assert.doesNotMatch(text, /\de[+-]\d/);
    for (const one of ['p99 250 ms', '2.50 s', '0.4 ms', '20m 34s'])
      assert.ok(text.includes(one), one);
  });
});

import assert from 'node:assert/strict';
import type { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { noWatchCounts, type FollowObserver } from '../../../src/discovery/announced-hub.ts';
import { readAnswer, removerOf, validatorsOf } from '../../../src/discovery/page-state.ts';
import {
  MAX_BACKOFF,
  MAX_PARALLEL_LOOKS,
  MAX_WATCHED,
  PageWatch,
  QUIET_LOOKS,
} from '../../../src/discovery/page-watch.ts';
import { MAX_WATCHED_BODY, WatchExchange } from '../../../src/discovery/watch-exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { standFor } from '../../../src/hub/election.ts';
import { createProcessBoard } from '../../../src/hub/presence-board.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { completed, Scheduler, unlimitedBudget } from '../../../src/kernel/scheduler.ts';
import { TestClock } from '../../support/test-clock.ts';

function head(status: number, fields: Record<string, string> = {}) {
  const headers = new HeaderList();
  for (const [name, value] of Object.entries(fields)) headers.append(name, value);
  return { status, headers, source: 'upstream' as const };
}

/** What an answer means, to somebody who ignores these parts. */
function read(
  status: number,
  fields: Record<string, string>,
  body: string | null,
  ignore: readonly string[] = [],
) {
  const answer = { head: head(status, fields), body: body === null ? null : Buffer.from(body) };
  return completed(
    readAnswer(answer, null, ignore.map(removerOf), ['hub-access-token'], unlimitedBudget()),
  );
}

const stateOf = (...given: Parameters<typeof read>) => {
  const verdict = read(...given);
  return verdict.kind === 'state' ? verdict.state : assert.fail(verdict.kind);
};

/** A watch whose followers, app and clock are the test's. */
function watching(test: { after(end: () => unknown): void }, respond: (body: Writable) => void) {
  const clock = new TestClock();
  const topics = new Set<string>();
  const counts = noWatchCounts();
  const asked: string[] = [];
  const state = { elected: true, announces: true, fails: false, announced: 0 };
  const observers = new Set<FollowObserver>();
  const watch = new PageWatch({
    followers: {
      topics: () => topics,
      observe(observer) {
        observers.add(observer);
        return () => void observers.delete(observer);
      },
      standFor: () => ({
        async isElected() {
          if (state.fails) throw new HubgateError('transport-failed', 'away');
          return state.elected;
        },
        leave: async () => {},
      }),
      counts,
    },
    pageOf: (topic) => {
      const url = new URL(topic);
      const announce = async (): Promise<boolean> => {
        state.announced += 1;
        return state.announces;
      };
      return {
        key: topic,
        url,
        target: url.pathname,
        rule: { intervalMs: 5_000, ignore: [], announce },
      };
    },
    async ask(exchange) {
      asked.push(exchange.target);
      respond(exchange.begin(head(200)));
    },
    states: new Map(),
    personalFields: [],
    scheduler: new Scheduler(),
    clock,
    random: () => 0.5,
    log: silentLogger,
  });
  test.after(() => watch.close());
  watch.start();
  const settle = async (): Promise<void> => {
    for (let turns = 0; turns < 20; turns += 1) await nextTurn();
  };
  return {
    asked,
    counts,
    state,
    settle,
    async follow(path: string) {
      topics.add(`http://x${path}`);
      for (const one of observers) one.began(`http://x${path}`);
      await settle();
    },
    async pass(ms: number) {
      clock.advance(ms);
      await settle();
    },
    watch,
    observers,
  };
}

describe('the state of a watched page', () => {
  it('is its ETag, weak or strong; with ignore it is a digest of the rest', () => {
    assert.equal(
      stateOf(200, { ETag: '"a"' }, 'x').mark,
      stateOf(200, { ETag: 'W/"a"' }, 'y').mark,
    );
    assert.notEqual(
      stateOf(200, { ETag: '"a"' }, 'x').mark,
      stateOf(200, { ETag: '"b"' }, 'x').mark,
    );
    const ignored = (etag: string, body: string): string =>
      stateOf(200, { ETag: etag }, body, ['token=[a-z]+', '<!--.*-->']).mark;
    assert.equal(
      ignored('"a"', '<p>1 token=x <!-- y -->'),
      ignored('"b"', '<p>1 token=zz <!-- -->'),
    );
    assert.notEqual(ignored('"a"', '<p>1'), ignored('"a"', '<p>2'));
  });

  it('finds ignored parts in lines of any length, in linear time', () => {
    const line = (token: string): string => `${'<li>entry</li>'.repeat(20_000)}<i t="${token}">`;
    const mark = (token: string): string => stateOf(200, {}, line(token), ['t="[^"]*"']).mark;
    assert.equal(mark('a'), mark('b'));
    assert.equal(typeof stateOf(200, {}, 'a'.repeat(100_000), ['(a+)+b']).mark, 'string');
  });

  it('asks by Last-Modified only if that date is older than the answer by more than its precision', () => {
    const date = 'Mon, 23 Nov 2026 07:00:00 GMT';
    const old = stateOf(200, { Date: date, 'Last-Modified': 'Mon, 23 Nov 2026 06:59:58 GMT' }, '');
    assert.deepEqual(validatorsOf(old), [['If-Modified-Since', 'Mon, 23 Nov 2026 06:59:58 GMT']]);
    assert.deepEqual(validatorsOf(stateOf(200, { Date: date, 'Last-Modified': date }, '')), []);
    assert.deepEqual(validatorsOf(stateOf(200, { ETag: 'W/"a"' }, '')), [
      ['If-None-Match', 'W/"a"'],
    ]);
  });

  it('does not exist for pages of one user, streams and pages too large to compare', () => {
    const unfit: Parameters<typeof read>[] = [
      [200, { 'Hub-Access-Token': 'x' }, ''],
      [200, { 'Content-Type': 'text/event-stream' }, null],
      [200, {}, null],
      [407, {}, ''],
      // Finding what to ignore takes seconds.
      [200, {}, '/a'.repeat(8_000), ['(/[^/]+)(/.*\\.html)?']],
    ];
    assert.deepEqual(
      unfit.map((one) => read(...one).kind),
      ['unfit', 'unfit', 'unfit', 'unfit', 'unfit'],
    );
    assert.deepEqual([read(429, {}, '').kind, read(502, {}, '').kind], ['failed', 'failed']);
    assert.equal(read(200, { ETag: '"large"' }, null).kind, 'state');
  });

  it('is not read beyond the bound of a body', async () => {
    const exchange = new WatchExchange(new URL('http://x/'), '/', silentLogger);
    const body = exchange.begin(head(200));
    body.write(Buffer.alloc(MAX_WATCHED_BODY));
    body.write(Buffer.alloc(1));
    assert.equal((await exchange.answer)?.body, null);
    await nextTurn();
    assert.equal(exchange.abandoned, true);
  });
});

describe('PageWatch', () => {
  it(`has at most ${MAX_PARALLEL_LOOKS} requests in parallel and ${MAX_WATCHED} pages`, async (test) => {
    const open: Writable[] = [];
    const { follow, asked, counts, settle } = watching(test, (body) => open.push(body));
    for (let page = 0; page < 10; page += 1) await follow(`/${page}`);
    assert.equal(asked.length, MAX_PARALLEL_LOOKS);
    open.shift()?.end();
    await settle();
    assert.equal(asked.length, MAX_PARALLEL_LOOKS + 1);
    const many = watching(test, (body) => body.end());
    for (const one of many.observers) {
      for (let page = 0; page < MAX_WATCHED + 5; page += 1) one.began(`http://x/${page}`);
    }
    assert.deepEqual([many.counts.watched, many.counts.refused], [MAX_WATCHED, 5]);
    for (const one of many.observers) one.ended('http://x/0');
    assert.deepEqual([many.counts.watched, counts.refused], [MAX_WATCHED - 1, 0]);
  });

  it('looks less often where nothing changes for long, and at its interval after a change', async (test) => {
    let text = 'one';
    const { follow, asked, pass, counts } = watching(test, (body) => body.end(text));
    await follow('/a');
    for (let looks = 0; looks < QUIET_LOOKS; looks += 1) await pass(5_000);
    assert.equal(asked.length, QUIET_LOOKS + 1);
    await pass(5_000);
    assert.equal(asked.length, QUIET_LOOKS + 1);
    for (let looks = 0; looks < 5 * QUIET_LOOKS; looks += 1) await pass(5_000 * MAX_BACKOFF);
    text = 'two';
    const before = asked.length;
    await pass(5_000 * MAX_BACKOFF);
    await pass(5_000);
    assert.deepEqual([asked.length, counts.changed], [before + 2, 1]);
  });

  it('announces a change again that the hub could not store', async (test) => {
    let text = 'one';
    const { follow, state, pass } = watching(test, (body) => body.end(text));
    await follow('/a');
    text = 'two';
    state.announces = false;
    await pass(5_000);
    state.announces = true;
    await pass(5_000);
    await pass(5_000);
    assert.equal(state.announced, 2);
  });

  it('leaves the work to the elected process, and waits while the election cannot be asked', async (test) => {
    let text = 'one';
    const { follow, state, asked, pass } = watching(test, (body) => body.end(text));
    state.elected = false;
    await follow('/a');
    await pass(5_000);
    assert.equal(asked.length, 1);
    text = 'two';
    Object.assign(state, { elected: true, fails: true });
    await pass(5_000);
    assert.equal(asked.length, 1);
    state.fails = false;
    await pass(10_000);
    assert.deepEqual([asked.length, state.announced], [2, 1]);
  });
});

describe('the election among processes that share a history', () => {
  it('chooses the one that has stood for longest, and the next one when that leaves', async () => {
    const board = createProcessBoard();
    const [one, other] = [standFor('x', board), standFor('x', board)];
    const elsewhere = standFor('y', board);
    assert.deepEqual(
      [await one.isElected(), await other.isElected(), await elsewhere.isElected()],
      [true, false, true],
    );
    await one.leave();
    assert.equal(await other.isElected(), true);
  });
});

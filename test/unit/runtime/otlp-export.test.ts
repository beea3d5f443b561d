import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MAX_WAITING_SPANS, OtlpExport } from '../../../src/runtime/otlp-export.ts';
import type { Span } from '../../../src/site/tracing.ts';
import { type LogLine, recorder } from '../../support/hub-server.ts';
import { TestClock } from '../../support/test-clock.ts';

const SPAN: Span = {
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  spanId: '00f067aa0ba902b7',
  parentId: null,
  name: 'GET',
  startMs: 1_700_000_000_000,
  endMs: 1_700_000_000_001.5,
  isError: true,
  attributes: { 'url.path': '/a', 'http.response.status_code': 502 },
};

function setUp(answer: (sent: string, signal: AbortSignal) => Promise<Response>) {
  const [counts, lines, clock] = [{ exported: 0, dropped: 0 }, [] as LogLine[], new TestClock()];
  const sent: string[] = [];
  const fake = async (url: unknown, init?: RequestInit): Promise<Response> => {
    const body = typeof init?.body === 'string' ? init.body : '';
    sent.push(`${String(url)} ${body}`);
    assert.ok(init?.signal instanceof AbortSignal);
    return answer(body, init.signal);
  };
  const url = 'http://collector:4318';
  const spans = new OtlpExport({ url, counts, clock, log: recorder(lines), fetch: fake });
  return { spans, counts, lines, clock, sent };
}

describe('OTLP export', () => {
  it('collects data for a while and sends it as one request in OTLP JSON', async () => {
    const { spans, counts, clock, sent } = setUp(async () => new Response('{}'));
    spans.add(SPAN);
    spans.add({ ...SPAN, parentId: 'b7ad6b7169203331', isError: false });
    assert.equal(sent.length, 0);
    clock.advance(2000);
    await spans.close();
    assert.equal(sent.length, 1);
    const [url, body = ''] = (sent[0] ?? '').split(/ (.*)/s);
    assert.equal(url, 'http://collector:4318/v1/traces');
    const [first, second] = JSON.parse(body).resourceSpans[0].scopeSpans[0].spans;
    assert.deepEqual(first, {
      traceId: SPAN.traceId,
      spanId: SPAN.spanId,
      name: 'GET',
      kind: 2,
      startTimeUnixNano: '1700000000000000000',
      endTimeUnixNano: '1700000000001500000',
      attributes: [
        { key: 'url.path', value: { stringValue: '/a' } },
        { key: 'http.response.status_code', value: { intValue: '502' } },
      ],
      status: { code: 2 },
    });
    assert.deepEqual([second.parentSpanId, second.status], ['b7ad6b7169203331', undefined]);
    assert.deepEqual(counts, { exported: 2, dropped: 0 });
  });

  it('limits what waits for a slow collector, one request at a time', async () => {
    let release: (answer: Response) => void = () => {};
    const { spans, counts, sent, lines } = setUp(
      () => new Promise((resolve) => (release = resolve)),
    );
    for (let i = 0; i < 512 + MAX_WAITING_SPANS + 10; i += 1) spans.add(SPAN);
    assert.equal(sent.length, 1);
    assert.equal(counts.dropped, 10);
    assert.deepEqual(
      lines.map(({ message, fields }) => [message, fields['error']]),
      [
        [
          'Spans cannot be exported; they are dropped until they can',
          `${MAX_WAITING_SPANS} spans wait already`,
        ],
      ],
    );
    const closed = spans.close();
    while (counts.exported < 512 + MAX_WAITING_SPANS) {
      release(new Response('{}'));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await closed;
    assert.equal(sent.length, 9);
  });

  it('logs once that a collector is too slow, and once that it has caught up', async () => {
    let release: (answer: Response) => void = () => {};
    const { spans, counts, lines } = setUp(() => new Promise((resolve) => (release = resolve)));
    const take = async (): Promise<void> => {
      release(new Response('{}'));
      await new Promise((resolve) => setImmediate(resolve));
    };
    for (let batch = 0; batch < 20; batch += 1) {
      for (let i = 0; i < 1_000; i += 1) spans.add(SPAN);
      await take();
    }
    assert.ok(counts.dropped > 512 && counts.exported > 512);
    const warning = 'Spans cannot be exported; they are dropped until they can';
    assert.deepEqual(
      lines.map(({ message }) => message),
      [warning],
    );
    for (let batch = 0; batch < 10; batch += 1) await take();
    assert.deepEqual(
      lines.map(({ message }) => message),
      [warning, 'Spans can be exported again'],
    );
    await spans.close();
  });

  it('gives the last spans one second when it closes, whatever the collector does', async () => {
    const { spans, counts, clock, sent } = setUp(
      (_, signal) =>
        new Promise((_resolve, reject) => {
          const fail = (): void => reject(new Error('aborted'));
          if (signal.aborted) fail();
          else signal.addEventListener('abort', fail);
        }),
    );
    for (let i = 0; i < 1500; i += 1) spans.add(SPAN);
    assert.equal(sent.length, 1);
    const closed = spans.close();
    clock.advance(1000);
    await closed;
    assert.deepEqual(counts, { exported: 0, dropped: 1500 });
    assert.equal(clock.waiting, 0);
  });

  it('counts what a collector refuses, and logs it once', async () => {
    let status = 503;
    const { spans, counts, lines } = setUp(async () => new Response('', { status }));
    for (let i = 0; i < 3; i += 1) {
      spans.add(SPAN);
      await spans.close();
    }
    assert.deepEqual(counts, { exported: 0, dropped: 3 });
    status = 200;
    spans.add(SPAN);
    await spans.close();
    assert.deepEqual(
      lines.map(({ message }) => message),
      ['Spans cannot be exported; they are dropped until they can', 'Spans can be exported again'],
    );
  });
});

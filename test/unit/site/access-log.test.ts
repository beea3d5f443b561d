import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import type { Logger } from '../../../src/kernel/log.ts';
import { logAccess } from '../../../src/site/access-log.ts';
import { RecordingSink } from '../../support/core-hub.ts';
import { type LogLine, recorder } from '../../support/hub-server.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('access log: streams', () => {
  it('are logged when they end, once, with their duration', async () => {
    const clock = new TestClock();
    const lines: LogLine[] = [];
    const sink = new RecordingSink();
    const closed: string[] = [];
    const listener = {
      events: 3,
      ended: 'slow',
      drained: () => void closed.push('drained'),
      closed: () => void closed.push('closed'),
    };
    const handle = logAccess(
      async (exchange) => {
        const head = { status: 200, headers: new HeaderList(), source: 'gateway' } as const;
        const stream = exchange.stream(head);
        stream.write(Buffer.from('data: one\n\n'));
        stream.listen(listener);
      },
      logging(recorder(lines), clock),
    );
    await handle(fakeExchange({ status: 200, stream: () => sink }));
    clock.advance(5000);
    sink.drain();
    assert.deepEqual(lines, []);
    sink.leave();
    assert.deepEqual(closed, ['drained', 'closed']);
    assert.deepEqual(
      lines.map(({ fields }) => [
        fields['http.server.request.duration'],
        fields['hubgate.stream.events'],
        fields['hubgate.stream.end_reason'],
        fields['http.response.body.size'],
      ]),
      [[5, 3, 'slow', 11]],
    );
  });

  it('are logged at once if they could not be opened', async () => {
    const lines: LogLine[] = [];
    const handle = logAccess(
      async (exchange) => {
        exchange.stream({ status: 200, headers: new HeaderList(), source: 'gateway' });
        throw new Error('no');
      },
      logging(recorder(lines)),
    );
    const sink = new RecordingSink();
    await assert.rejects(handle(fakeExchange({ status: 200, stream: () => sink })), /no/);
    assert.equal(lines.length, 1);
  });
});

describe('access log: secrets', () => {
  it('are removed from fields, from the target and from the URL in Referer', async () => {
    const lines: LogLine[] = [];
    const headers = new HeaderList();
    headers.append('X-Api-Key', 's3cret');
    headers.append('X-Auth-Token', 's3cret');
    headers.append(
      'Referer',
      'https://u:s3cret@a.example/p?x=1&access_token=s3cret#id_token=s3cret',
    );
    headers.append('Accept', 'text/html');
    const target = '/p?%61uthorization=s3cret&api_key=s3cret&page=2';
    const handle = logAccess(async () => {}, logging(recorder(lines)));
    await handle(fakeExchange({ status: 200, headers, target, originalTarget: target }));
    const line = JSON.stringify(lines);
    assert.ok(!line.includes('s3cret'), line);
    for (const kept of ['page=2', 'x=1', 'text/html']) assert.ok(line.includes(kept), line);
  });
});

describe('access log: fields', () => {
  it('are text', async () => {
    const lines: LogLine[] = [];
    const headers = HeaderList.of({ 'User-Agent': utf8Field('José'), 'X-Other': 'Jos\u00e9' });
    const handle = logAccess(async () => {}, logging(recorder(lines)));
    await handle(fakeExchange({ status: 200, headers }));
    const line = JSON.stringify(lines);
    assert.equal(line.match(/José/g)?.length, 2, line);
  });
});

describe('access log: log_credentials', () => {
  it('shows header fields unchanged, but still no secret in a URL', async () => {
    const lines: LogLine[] = [];
    const headers = new HeaderList();
    headers.append('Authorization', 'Bearer shown');
    headers.append('Cookie', 'a=shown');
    headers.append('Referer', 'https://u:s3cret@a.example/?token=s3cret');
    const settings = { ...logging(recorder(lines)), logCredentials: true };
    const handle = logAccess(async () => {}, settings);
    await handle(fakeExchange({ status: 200, headers, originalTarget: '/?access_token=s3cret' }));
    const text = JSON.stringify(lines);
    assert.doesNotMatch(text, /s3cret/);
    assert.match(text, /Bearer shown.*a=shown/);
  });
});

function logging(log: Logger, clock = new TestClock()): Parameters<typeof logAccess>[1] {
  const writers = [{ log, format: 'json' as const }];
  const only = { name: null, concerns: () => true, onlyNamed: false, writers };
  return { logs: [only], clock, logCredentials: false };
}

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { parseUpstream } from '../../../src/proxy/address.ts';
import { forwardByFastcgi } from '../../../src/proxy/fastcgi/fastcgi.ts';
import { ForwardError } from '../../../src/proxy/forward-error.ts';
import { scriptOf, scriptParameters } from '../../../src/proxy/fastcgi/parameters.ts';
import {
  endOfStream,
  HeadReader,
  MAX_ERROR_BYTES,
  MAX_WASTED_BYTES,
  RECORD,
  RecordReader,
  streamRecords,
} from '../../../src/proxy/fastcgi/records.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { proxyConfig, rawOrigin } from './gateway.ts';
import { LeavingClient } from './http1-client.ts';

const SCRIPT = {
  ...{ method: 'GET', target: '/a.php', root: '/srv', scriptName: '/a.php', pathInfo: '' },
  env: new Map<string, string>(),
};

describe('parameters of a script (RFC 3875 §4.1)', () => {
  it('never include the field Proxy, or a field whose name would collide with another', () => {
    const headers = HeaderList.of({
      Proxy: 'http://evil.example',
      X_Real_IP: '1.2.3.4',
      'X.Real.IP': '1.2.3.4',
      'X-Real-IP': '5.6.7.8',
      'Content-Length': '9',
    });
    const parameters = scriptParameters(fakeExchange({}), headers, SCRIPT);
    const names = [...parameters.keys()].filter((name) => name.startsWith('HTTP_'));
    assert.deepEqual(names, ['HTTP_X_REAL_IP']);
    assert.equal(parameters.get('HTTP_X_REAL_IP'), '5.6.7.8');
  });

  it('map no path to a file outside the root', () => {
    for (const [pathInfo, translated] of [
      ['/x/y', '/srv/x/y'],
      ['/x/../y', '/srv/y'],
      ['/../x', undefined],
      ['/../srv2/x', undefined],
      ['', undefined],
    ] as const) {
      const script = { ...SCRIPT, pathInfo };
      const parameters = scriptParameters(fakeExchange({}), new HeaderList(), script);
      assert.equal(parameters.get('PATH_TRANSLATED'), translated, pathInfo);
    }
  });

  it('are limited in size', () => {
    const headers = HeaderList.of({ 'X-Long': 'x'.repeat(300_000) });
    assert.throws(() => scriptParameters(fakeExchange({}), headers, SCRIPT), {
      code: 'unsendable-request',
    });
  });

  it('split a path after the first script', () => {
    for (const [path, scriptName, pathInfo] of [
      ['/a.php', '/a.php', ''],
      ['/a.PHP/b/c', '/a.PHP', '/b/c'],
      ['/a.phpx/b.php/c', '/a.phpx/b.php', '/c'],
      ['//x/./a.php', '/x/a.php', ''],
      ['/plain/', '/plain/', ''],
    ] as const) {
      assert.deepEqual(scriptOf(path, ['.php']), { scriptName, pathInfo }, path);
    }
    assert.throws(() => scriptOf('/../a.php', ['.php']), { status: 404 });
    assert.throws(() => scriptOf('/a.php/\0', ['.php']), { status: 404 });
  });
});

describe('FastCGI records (§3.3)', () => {
  it('are read completely however they are split into chunks', () => {
    const content = Buffer.alloc(150_000, 'abc');
    const padded = Buffer.from([1, RECORD.stderr, 0, 1, 0, 3, 5, 0, ...Buffer.from('odd-----')]);
    const onlyPadding = Buffer.from([1, RECORD.stdout, 0, 1, 0, 0, 2, 0, 0, 0]);
    const ending = Buffer.from([1, RECORD.endRequest, 0, 1, 0, 8, 0, 0, 0, 0, 0, 7, 3, 0, 0, 0]);
    const bytes = Buffer.concat([
      ...[padded, streamRecords(RECORD.stdout, content), onlyPadding],
      ...[endOfStream(RECORD.stdout), padded, ending],
    ]);
    for (const size of [1, 7, 8, 9, 65_536, bytes.length]) {
      const reader = new RecordReader();
      const parts = new Map<number, Buffer[]>();
      for (let at = 0; at < bytes.length; at += size) {
        for (const part of reader.read(bytes.subarray(at, at + size))) {
          parts.set(part.type, [...(size === 1 ? [] : (parts.get(part.type) ?? [])), part.content]);
        }
      }
      const [last] = parts.get(RECORD.endRequest) ?? [];
      assert.deepEqual(last, ending.subarray(8));
      if (size === 1) continue;
      assert.ok(Buffer.concat(parts.get(RECORD.stdout) ?? []).equals(content), String(size));
      assert.equal(Buffer.concat(parts.get(RECORD.stderr) ?? []).toString(), 'oddodd');
    }
  });

  it('without output are rejected when too many follow each other', () => {
    const nothing = endOfStream(RECORD.stdout);
    const enough = MAX_WASTED_BYTES / nothing.length;
    const output = streamRecords(RECORD.stdout, Buffer.from('a'));
    const line = streamRecords(RECORD.stderr, Buffer.from('PHP message: a warning'));
    const records = (one: Buffer, count: number): Buffer => Buffer.alloc(one.length * count, one);
    const read = (...all: Buffer[]): number => {
      const reader = new RecordReader();
      let parts = 0;
      for (const bytes of all)
        for (const { content } of reader.read(bytes)) parts += content.length;
      return parts;
    };
    assert.equal(read(records(nothing, enough), output, records(nothing, enough)), 1);
    assert.equal(read(records(output, 2 * enough)), 2 * enough);
    read(records(line, 2 * enough));
    for (const one of [
      nothing,
      streamRecords(RECORD.stderr, Buffer.from('e')),
      streamRecords(11, Buffer.from('unknown')),
      Buffer.from([1, RECORD.stderr, 0, 1, 0, 8, 3, 0, ...Buffer.from('contents---')]),
    ]) {
      assert.throws(() => read(records(one, 3 * enough)), { code: 'upstream-broken' });
    }
  });

  it('of error output are rejected when too many follow each other', () => {
    const errors = streamRecords(
      RECORD.stderr,
      Buffer.alloc(1024 * 1024, 'PHP message: a warning\n'),
    );
    const output = streamRecords(RECORD.stdout, Buffer.from('a'));
    const enough = MAX_ERROR_BYTES / (1024 * 1024);
    const reader = new RecordReader();
    const read = (bytes: Buffer): number => [...reader.read(bytes)].length;
    for (let round = 0; round < 2; round += 1) {
      for (let count = 0; count < enough; count += 1) read(errors);
      read(output);
    }
    for (let count = 0; count < enough; count += 1) read(errors);
    assert.throws(() => read(errors), {
      code: 'upstream-broken',
      message: /errors without output/,
    });
  });

  it('of another version or request are rejected', () => {
    const bytes = streamRecords(RECORD.stdout, Buffer.from('x'));
    bytes[3] = 2;
    assert.throws(() => [...new RecordReader().read(bytes)], { code: 'upstream-broken' });
    const ending = streamRecords(RECORD.endRequest, Buffer.from('short'));
    assert.throws(() => [...new RecordReader().read(ending)], { code: 'upstream-broken' });
  });
});

describe('the head of a script response (RFC 3875 §6.2)', () => {
  it('is read across chunks; a Location without Status redirects', () => {
    const reader = new HeadReader();
    assert.equal(reader.read(Buffer.from('Location: /x\r\nX-A: 1\r')), null);
    assert.equal(reader.read(Buffer.from('\n\r')), null);
    const head = reader.read(Buffer.from('\nbody'));
    assert.equal(head?.status, 302);
    assert.equal(head?.headers.get('x-a'), '1');
    assert.equal(head?.rest.toString(), 'body');
  });

  it('is rejected for a line that is not a field, and for an invalid status', () => {
    for (const text of [
      'no field\n\n',
      'A: \x01\n\n',
      ': x\n\n',
      'Status: 99\n\n',
      'Status: 103 x\n\n',
    ]) {
      assert.throws(() => new HeadReader().read(Buffer.from(text)), { code: 'upstream-broken' });
    }
    const endless = Buffer.from(`X: ${'x'.repeat(100_000)}`);
    assert.throws(() => new HeadReader().read(endless), { code: 'upstream-broken' });
  });
});

describe('a request to a script server that resets the connection', () => {
  const REFUSAL = Buffer.concat([
    streamRecords(RECORD.stdout, Buffer.from('Status: 413\r\n\r\nbig')),
    streamRecords(RECORD.endRequest, Buffer.alloc(8)),
  ]);
  for (const [what, response, expected] of [
    ['complete', REFUSAL, { status: 413, body: 'big', failure: null }],
    [
      'cut',
      REFUSAL.subarray(0, -1),
      { status: 413, body: 'big', failure: 'upstream-broken responding' },
    ],
    ['missing', Buffer.alloc(0), { status: 0, body: '', failure: 'upstream-broken sent' }],
  ] as const) {
    it(`ends in the middle, after a ${what} response, which is read first`, async () => {
      const body = new PassThrough();
      await using upstream = await rawOrigin((socket) => {
        socket.write(response);
        socket.resetAndDestroy();
        // The write fails before anything is read.
        body.write('more');
        setImmediate(() => body.write('and more'));
      });
      body.write('hello');
      const { transport: settings } = proxyConfig([], {});
      const received = { status: 0, body: '', failure: null as string | null };
      const stream = new PassThrough();
      stream.on('data', (chunk: Buffer) => (received.body += chunk.toString('latin1')));
      await forwardByFastcgi(
        { address: parseUpstream(upstream.url), settings },
        {
          ...{ method: 'POST', parameters: new Map(), contentLength: '100', body },
          ...{ client: new LeavingClient(), clock: systemClock, log: silentLogger },
        },
        {
          onInformation: () => {},
          onHead: (status) => {
            received.status = status;
            return stream;
          },
          onEnd: () => {},
        },
      ).catch((error: unknown) => {
        received.failure =
          error instanceof ForwardError ? `${error.code} ${error.phase}` : String(error);
      });
      assert.deepEqual(received, expected);
    });
  }
});

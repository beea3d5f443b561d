import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import { rawOrigin, until } from './gateway.ts';
import { Http1Client } from './http1-client.ts';

const OK = 'HTTP/1.1 200 OK\r\n';

describe('a response of an HTTP/1.1 upstream that resets the connection', () => {
  for (const framing of ['', 'Content-Length: 10\r\n', 'Transfer-Encoding: chunked\r\n']) {
    const what = framing === '' ? 'no framing' : framing.trim();
    it(`is broken off where the connection is reset, with ${what}`, async () => {
      let reset = (): void => {};
      await using upstream = await rawOrigin((socket) => {
        reset = () => void socket.resetAndDestroy();
        socket.write(`${OK}${framing}\r\n`);
      });
      using client = new Http1Client(upstream.url);
      const { failure } = await client.ask(
        {},
        {
          onHead: () => {
            reset();
            return new PassThrough();
          },
        },
      );
      assert.equal(failure, 'upstream-broken responding');
    });
  }

  it('is broken off where the reset arrives together with the data before it', async () => {
    await using upstream = await rawOrigin((socket) => {
      socket.write(`${OK}\r\npart`);
      socket.resetAndDestroy();
    });
    using client = new Http1Client(upstream.url);
    const { failure, body } = await client.ask();
    assert.deepEqual({ failure, body }, { failure: 'upstream-broken responding', body: 'part' });
  });
});

describe('a request to an HTTP/1.1 upstream that resets the connection', () => {
  const REFUSAL = 'HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig';
  const ENDLESS = 'HTTP/1.1 200 OK\r\n\r\npart';
  for (const [what, response, expected] of [
    ['complete', REFUSAL, { status: 413, body: 'big', failure: null }],
    [
      'cut',
      REFUSAL.slice(0, -1),
      { status: 413, body: 'bi', failure: 'upstream-broken responding' },
    ],
    ['endless', ENDLESS, { status: 200, body: 'part', failure: 'upstream-broken responding' }],
    ['missing', '', { status: 0, body: '', failure: 'upstream-broken sent' }],
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
      using client = new Http1Client(upstream.url);
      body.write('hello');
      const { status, body: received, failure } = await client.ask({ method: 'POST', body });
      assert.deepEqual({ status, body: received, failure }, expected);
      await until(() => upstream.open() === 0, 'the connection is closed');
    });
  }
});

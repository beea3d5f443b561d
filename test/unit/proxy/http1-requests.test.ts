import assert from 'node:assert/strict';
import type net from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { TestClock } from '../../support/test-clock.ts';
import { rawOrigin, until } from './gateway.ts';
import { Http1Client, LeavingClient } from './http1-client.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const answerTo =
  (end: string) =>
  (socket: net.Socket, text: string): void => {
    if (text.endsWith(end)) socket.write(OK);
  };

/** What an upstream receives of a request. */
async function received(
  end: string,
  sent: Parameters<Http1Client['ask']>[0],
  transport: ConstructorParameters<typeof Http1Client>[1] = {},
): Promise<string> {
  await using upstream = await rawOrigin(answerTo(end));
  using client = new Http1Client(upstream.url, transport);
  assert.deepEqual(await client.ask(sent).then(({ failure }) => failure), null);
  return upstream.received();
}

describe('a request to an HTTP/1.1 upstream (RFC 9112 §3)', () => {
  it('is one head with Host first, byte for byte', async () => {
    const headers = { 'X-B': 'caf\xe9', 'x-a': '', 'X-Tab': 'a\tb' };
    assert.equal(
      await received('\r\n\r\n', { target: '/a?b=\xe9', headers }),
      'GET /a?b=\xe9 HTTP/1.1\r\nhost: a.example\r\nconnection: keep-alive\r\nX-B: caf\xe9\r\nx-a: \r\nX-Tab: a\tb\r\n\r\n',
    );
  });

  it('announces that the connection is closed if none is kept, and after HEAD', async () => {
    assert.match(await received('\r\n\r\n', {}, { keepAliveMs: 0 }), /\r\nconnection: close\r\n/);
    await using upstream = await rawOrigin(answerTo('\r\n\r\n'));
    using client = new Http1Client(upstream.url);
    await client.ask({ method: 'HEAD' });
    assert.match(upstream.received(), /\r\nconnection: close\r\n/);
  });

  it('has the length 0 if its method usually has a body (RFC 9110 §8.6)', async () => {
    for (const method of ['POST', 'PUT', 'PATCH']) {
      assert.match(await received('\r\n\r\n', { method }), /\r\ncontent-length: 0\r\n/);
    }
    for (const method of ['GET', 'DELETE', 'OPTIONS']) {
      assert.doesNotMatch(await received('\r\n\r\n', { method }), /content-length/);
    }
  });

  const POST = { method: 'POST', body: 'hello' };
  const bodies: readonly (readonly [
    what: string,
    sent: Parameters<Http1Client['ask']>[0],
    end: RegExp,
  ])[] = [
    ['a length', { ...POST, contentLength: '5' }, /\r\ncontent-length: 5\r\n\r\nhello$/],
    ['chunks', POST, /\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n$/],
    [
      'a length with zeros in front',
      { ...POST, contentLength: '0005' },
      /\r\ncontent-length: 5\r\n\r\nhello$/,
    ],
    [
      'chunks of each piece',
      { ...POST, body: Readable.from([Buffer.from('he'), Buffer.alloc(0), Buffer.from('llo')]) },
      /\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n$/,
    ],
    [
      'announced trailer fields in spite of a length',
      {
        ...POST,
        contentLength: '5',
        headers: { Trailer: 'X-Sum' },
        trailers: { 'X-Sum': '1', 'X-B': '2' },
      },
      /\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n$/,
    ],
    [
      'no content and the length 0',
      { ...POST, body: Readable.from([]), contentLength: '0' },
      /\r\ncontent-length: 0\r\n\r\n$/,
    ],
    [
      'no content and no length',
      { ...POST, body: Readable.from([]) },
      /\r\ncontent-length: 0\r\n\r\n$/,
    ],
    [
      'no content and no length, for GET',
      { method: 'GET', body: Readable.from([]) },
      /\r\nconnection: keep-alive\r\n\r\n$/,
    ],
  ];
  for (const [what, sent, pattern] of bodies) {
    it(`frames a body with ${what}`, async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (pattern.test(text)) socket.write(OK);
      });
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask(sent)).failure, null);
      assert.equal(
        upstream.received().match(/content-length|transfer-encoding/gi)?.length ?? 0,
        /GET/.test(what) ? 0 : 1,
      );
    });
  }

  it('is sent with the first piece of its body, so a body that fails before reaches nobody', async () => {
    await using upstream = await rawOrigin(answerTo('hello'));
    using client = new Http1Client(upstream.url);
    const bodies = [new PassThrough(), new PassThrough()];
    const [failing, good] = bodies.map((body) =>
      client.ask({ method: 'POST', body, contentLength: '5' }),
    );
    await until(() => upstream.connections() === 2, 'both connections are there');
    bodies[0]?.destroy(new Error('malformed'));
    assert.equal((await failing)?.failure, 'upstream-broken sent');
    assert.equal(upstream.received(), '');
    bodies[1]?.end('hello');
    assert.equal((await good)?.body, 'ok');
  });

  it('waits for 100 if it expects it, or for a second', async () => {
    const clock = new TestClock();
    const sent = { method: 'PUT', contentLength: '5', headers: { Expect: '100-continue' } };
    await using upstream = await rawOrigin(answerTo('hello'));
    using client = new Http1Client(upstream.url, {}, clock);
    const answer = client.ask({ ...sent, body: 'hello' });
    await until(() => upstream.received().endsWith('\r\n\r\n'), 'the upstream has the head');
    clock.advance(1000);
    assert.equal((await answer).body, 'ok');
  });
});

const BAD_VALUES = [
  'a\r\nX-B: 1',
  'a\nb',
  'a\rb',
  'a\0b',
  'a\x7f',
  'a\x1bb',
  'a\u010ab',
  'a\u{1f600}',
];

describe('a request that cannot be sent (RFC 9112 §11.1)', () => {
  const refused: readonly (readonly [what: string, sent: Parameters<Http1Client['ask']>[0]])[] = [
    ...BAD_VALUES.map(
      (value) => [`the value ${JSON.stringify(value)}`, { headers: { 'X-A': value } }] as const,
    ),
    ...BAD_VALUES.map(
      (value) => [`the host ${JSON.stringify(value)}`, { headers: { Host: value } }] as const,
    ),
    ...['', 'X A', 'X-A:', 'X-A: 1\r\nX-B', 'X\0', '\xe9', 'X-A\n'].map(
      (name) => [`the name ${JSON.stringify(name)}`, { headers: { [name]: '1' } }] as const,
    ),
    ...['', 'G ET', 'GET\r\n', 'G\0T', 'GET /a HTTP/1.1\r\nX:'].map(
      (method) => [`the method ${JSON.stringify(method)}`, { method }] as const,
    ),
    ...['', '/a b', '/a\r\nX-B: 1', '/\0', '/a HTTP/1.1\r\nX: ', '/\u010a', '/\t'].map(
      (target) => [`the target ${JSON.stringify(target)}`, { target }] as const,
    ),
    ...['Content-Length', 'transfer-encoding', 'TRANSFER-ENCODING'].map(
      (name) => [`the field ${name}`, { headers: { [name]: '1' } }] as const,
    ),
  ];
  for (const [what, sent] of refused) {
    it(`has ${what}, and nothing of it reaches the upstream`, async () => {
      await using upstream = await rawOrigin(answerTo('\r\n\r\n'));
      using client = new Http1Client(upstream.url);
      const { failure } = await client.ask(sent);
      assert.equal(failure, 'unsendable-request unsent');
      assert.equal(upstream.connections(), 0);
    });
  }

  it('has a length that is not a number', async () => {
    for (const contentLength of ['', '+5', '5, 5', '0x5', '5\r\nX-B: 1', '99999999999999999999']) {
      await using upstream = await rawOrigin(answerTo('hello'));
      using client = new Http1Client(upstream.url);
      const { failure } = await client.ask({ method: 'POST', body: 'hello', contentLength });
      assert.equal(failure, 'unsendable-request unsent');
      assert.equal(upstream.received(), '');
    }
  });

  for (const [what, contentLength, pieces] of [
    ['shorter', '10', ['hello']],
    ['empty', '10', []],
    ['longer', '3', ['he', 'llo']],
    ['longer in one piece', '3', ['hello']],
    ['not empty', '0', ['hello']],
  ] as const) {
    it(`has a body that is ${what} than it declares: the connection is closed`, async () => {
      let closed = false;
      await using upstream = await rawOrigin((socket) => {
        socket.once('close', () => (closed = true));
      });
      using client = new Http1Client(upstream.url);
      const body = Readable.from(pieces.map((piece) => Buffer.from(piece)));
      const { failure } = await client.ask({ method: 'POST', body, contentLength });
      assert.equal(failure, 'unsendable-request sent');
      await until(() => closed || upstream.received() === '', 'the connection is closed');
      const [, rest = ''] = upstream.received().split('\r\n\r\n');
      assert.ok(rest.length <= Number(contentLength), rest);
    });
  }

  it('has a trailer field that would end its line', async () => {
    let closed = false;
    await using upstream = await rawOrigin((socket) => {
      socket.once('close', () => (closed = true));
    });
    using client = new Http1Client(upstream.url);
    const { failure } = await client.ask({
      ...{ method: 'POST', body: 'hello', headers: { Trailer: 'X-Sum' } },
      trailers: { 'X-Sum': '1\r\n\r\nGET / HTTP/1.1' },
    });
    assert.equal(failure, 'unsendable-request sent');
    await until(() => closed, 'the connection is closed');
    assert.doesNotMatch(upstream.received(), /X-Sum: 1|0\r\n/);
  });
});

describe('an exchange that ends early', () => {
  it('with a body that fails: the connection is closed, and the error is kept', async () => {
    let closed = false;
    await using upstream = await rawOrigin((socket) => {
      socket.once('close', () => (closed = true));
    });
    using client = new Http1Client(upstream.url);
    const body = new PassThrough();
    const answer = client.ask({ method: 'POST', body });
    body.write('hello');
    await until(() => upstream.received().endsWith('hello\r\n'), 'the upstream has the beginning');
    body.destroy(new Error('the disk is full'));
    assert.equal((await answer).failure, 'upstream-broken sent');
    await until(() => closed, 'the connection is closed');
    assert.doesNotMatch(upstream.received(), /\r\n0\r\n/);
  });

  for (const [when, begins] of [
    ['before the connection is there', null],
    ['before the response', ''],
    ['within the head', 'HTTP/1.1 200'],
    ['within the body', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello'],
    ['within a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello'],
  ] as const) {
    it(`with a client that leaves ${when}: the connection is closed`, async () => {
      await using upstream = await rawOrigin((socket) => {
        if (begins !== null) socket.write(begins);
      });
      using client = new Http1Client(upstream.url);
      const leaving = new LeavingClient();
      const answer = client.ask({ client: leaving });
      if (begins === null) leaving.leave();
      else await until(() => upstream.received() !== '', 'the upstream has the request');
      if (begins !== null && begins !== '') await new Promise((done) => setTimeout(done, 20));
      leaving.leave();
      const { failure } = await answer;
      assert.match(String(failure), /^upstream-aborted /);
      assert.equal(leaving.listeners, 0);
      await until(() => upstream.open() === 0, 'the connection is closed');
    });
  }

  it('with a client that has left before: nothing is sent', async () => {
    await using upstream = await rawOrigin(answerTo('\r\n\r\n'));
    using client = new Http1Client(upstream.url);
    const leaving = new LeavingClient();
    leaving.leave();
    assert.equal((await client.ask({ client: leaving })).failure, 'upstream-aborted unsent');
    assert.equal(upstream.connections(), 0);
  });

  it('with an error of the receiver, which is kept: the connection is closed', async () => {
    const failure = new TypeError('a mistake');
    const mistake = (): never => {
      throw failure;
    };
    const long = 'HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nhello';
    for (const [text, more] of [
      [long, { onHead: mistake }],
      [OK, { onHead: mistake }],
      [OK, { onEnd: mistake }],
      ['HTTP/1.1 103 Early Hints\r\n\r\n', { onInformation: mistake }],
    ] as const) {
      await using upstream = await rawOrigin((socket) => socket.write(text));
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask({}, more)).failure, 'TypeError: a mistake');
      if (text !== OK) await until(() => upstream.open() === 0, 'the connection is closed');
    }
  });

  it('with an unwanted body: a short one is read, and a long one closes the connection', async () => {
    for (const [length, connections] of [
      [1000, 1],
      [20_000, 1],
      [10_000_000, 2],
    ] as const) {
      const text = `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n${'x'.repeat(length)}`;
      await using upstream = await rawOrigin((socket) => socket.write(text));
      using client = new Http1Client(upstream.url);
      for (let i = 0; i < 2; i += 1) {
        assert.equal((await client.ask({}, { onHead: () => null })).failure, null);
      }
      assert.equal(upstream.connections(), connections);
    }
  });

  it('with an unwanted body that does not end: the connection is closed after a second', async () => {
    const clock = new TestClock();
    await using upstream = await rawOrigin((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n');
    });
    using client = new Http1Client(upstream.url, { readTimeoutMs: 5000 }, clock);
    let hasHead = false;
    const asked = client.ask(
      {},
      {
        onHead: () => {
          hasHead = true;
          return null;
        },
      },
    );
    await until(() => hasHead, 'the response has begun');
    clock.advance(1000);
    assert.equal((await asked).failure, null);
    assert.equal(clock.waiting, 0);
    await until(() => upstream.open() === 0, 'the connection is closed');
  });

  it('with an unwanted body that is cut or malformed, which nobody misses', async () => {
    for (const rest of ['5\r\nhel', 'zz\r\n']) {
      await using upstream = await rawOrigin((socket) => {
        socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${rest}`);
      });
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask({}, { onHead: () => null })).failure, null);
      await until(() => upstream.open() === 0, 'the connection is closed');
    }
  });

  it('with a response before the complete request: the connection is closed', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith('hello\r\n')) socket.write(OK);
    });
    using client = new Http1Client(upstream.url);
    const body = new PassThrough();
    body.write('hello');
    assert.equal((await client.ask({ method: 'POST', body })).body, 'ok');
    await until(() => upstream.open() === 0, 'the connection is closed');
    body.end('more');
    assert.doesNotMatch(upstream.received(), /more|\r\n0\r\n/);
  });
});

import assert from 'node:assert/strict';
import type net from 'node:net';
import http from 'node:http';
import { describe, it } from 'node:test';
import { rawOrigin, until } from './gateway.ts';
import { Http1Client, type Received, writePieces } from './http1-client.ts';

const OK = 'HTTP/1.1 200 OK\r\n';
/** Bytes in each piece of a response. */
const SIZES = [1, 3, 7, Infinity];

/** Answers each request without a body in pieces of `size` bytes. */
const answering =
  (text: string, size: number, closes = false) =>
  (socket: net.Socket, received: string): void => {
    if (!received.endsWith('\r\n\r\n')) return;
    socket.setNoDelay(true);
    void writePieces(socket, text, Math.min(size, text.length || 1)).then(() => {
      if (closes) socket.end();
    });
  };

interface Case {
  readonly what: string;
  readonly text: string;
  readonly method?: string;
  readonly body?: string;
  readonly status?: number;
  readonly trailers?: readonly string[];
  /** The upstream closes after the response. */
  readonly closes?: boolean;
  /** Whether the next request uses the same connection. */
  readonly isReused?: boolean;
}

const CASES: readonly Case[] = [
  { what: 'with a length', text: `${OK}Content-Length: 5\r\n\r\nhello`, body: 'hello' },
  { what: 'with the length 0', text: `${OK}Content-Length: 0\r\n\r\n` },
  {
    what: 'with a length in front of zeros',
    text: `${OK}Content-Length: 0005\r\n\r\nhello`,
    body: 'hello',
  },
  {
    what: 'in chunks',
    text: `${OK}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n`,
    body: 'hello',
  },
  { what: 'in chunks, without content', text: `${OK}Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n` },
  {
    what: 'in chunks, with extensions and trailer fields',
    text: `${OK}Transfer-Encoding: chunked\r\n\r\n5;a="b"\r\nhello\r\n0;c\r\nX-Sum: 1\r\nx-b: \xe9\r\n\r\n`,
    body: 'hello',
    trailers: ['X-Sum', '1', 'x-b', '\xe9'],
  },
  {
    what: 'until the end of the connection',
    text: `${OK}X-A: 1\r\n\r\nhello`,
    body: 'hello',
    closes: true,
    isReused: false,
  },
  {
    what: 'until the end of the connection, without content',
    text: `${OK}\r\n`,
    closes: true,
    isReused: false,
  },
  {
    what: 'with Connection: close',
    text: `${OK}Connection: close\r\nContent-Length: 5\r\n\r\nhello`,
    body: 'hello',
    isReused: false,
  },
  {
    what: 'with close among other options',
    text: `${OK}Connection: x, Close\r\nContent-Length: 0\r\n\r\n`,
    isReused: false,
  },
  {
    what: 'of HTTP/1.0',
    text: 'HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello',
    body: 'hello',
    isReused: false,
  },
  {
    what: 'of HTTP/1.0 that stays',
    text: 'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello',
    body: 'hello',
  },
  { what: 'without a reason', text: 'HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na', body: 'a' },
  {
    what: 'without a reason and its space',
    text: 'HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na',
    body: 'a',
  },
  {
    what: 'with a status that is not registered',
    text: 'HTTP/1.1 799 Odd \xe9\r\nContent-Length: 1\r\n\r\na',
    body: 'a',
    status: 799,
  },
  {
    what: 'to HEAD, with a length',
    method: 'HEAD',
    text: `${OK}Content-Length: 5\r\n\r\n`,
    isReused: false,
  },
  {
    what: 'to HEAD, with chunks',
    method: 'HEAD',
    text: `${OK}Transfer-Encoding: chunked\r\n\r\n`,
    isReused: false,
  },
  { what: 'with the status 204', text: 'HTTP/1.1 204 No Content\r\n\r\n', status: 204 },
  {
    what: 'with the status 204 and a length',
    text: 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n',
    status: 204,
    isReused: false,
  },
  {
    what: 'with the status 204 and the length 0',
    text: 'HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n',
    status: 204,
  },
  {
    what: 'with the status 304 and a length',
    text: 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n',
    status: 304,
  },
];

/** What a second request gets, for which the upstream has the same answer. */
async function twice(one: Case, size: number): Promise<{ first: Received; connections: number }> {
  await using upstream = await rawOrigin(answering(one.text, size, one.closes));
  using client = new Http1Client(upstream.url);
  const method = one.method ?? 'GET';
  const first = await client.ask({ method });
  const second = await client.ask({ method });
  assert.deepEqual(second, first);
  return { first, connections: upstream.connections() };
}

describe('a response of an HTTP/1.1 upstream (RFC 9112 §6.3)', () => {
  for (const one of CASES) {
    it(`${one.what} is complete, in pieces of any size`, async () => {
      for (const size of SIZES) {
        const { first, connections } = await twice(one, size);
        const { failure, body, status, trailers } = first;
        assert.equal(failure, null, `pieces of ${size}`);
        assert.deepEqual(
          { body, status, trailers: [...trailers] },
          { body: one.body ?? '', status: one.status ?? 200, trailers: [...(one.trailers ?? [])] },
        );
        assert.equal(connections, one.isReused === false ? 2 : 1, `pieces of ${size}`);
      }
    });
  }

  it('keeps its fields in order and case, byte for byte', async () => {
    const text = `${OK}X-B:\t\xe9 \r\nx-a: 1\r\nX-A: 2\r\nEmpty:\r\nContent-Length: 0\r\n\r\n`;
    await using upstream = await rawOrigin(answering(text, Infinity));
    using client = new Http1Client(upstream.url);
    const { fields } = await client.ask();
    assert.deepEqual(fields, [
      ...['X-B', '\xe9', 'x-a', '1', 'X-A', '2', 'Empty', '', 'Content-Length', '0'],
    ]);
  });

  it('may be large, with a large head', async () => {
    const head = `X-Large: ${'x'.repeat(60_000)}\r\n`;
    const body = 'abcdefg'.repeat(100_000);
    const framings = [
      [`Content-Length: ${body.length}\r\n\r\n${body}`, false],
      [
        `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
        false,
      ],
      [`\r\n${body}`, true],
    ] as const;
    for (const [rest, closes] of framings) {
      for (const size of [10_000, Infinity]) {
        await using upstream = await rawOrigin(answering(`${OK}${head}${rest}`, size, closes));
        using client = new Http1Client(upstream.url);
        const { failure, body: received } = await client.ask();
        assert.equal(failure, null);
        assert.ok(received === body, `${received.length} bytes`);
      }
    }
  });

  it('may follow informational ones, of which 100 is not passed on, in pieces of any size', async () => {
    const interim =
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\nHTTP/1.1 102 \r\n\r\n';
    for (const size of SIZES) {
      await using upstream = await rawOrigin(
        answering(`${interim}${OK}Content-Length: 2\r\n\r\nok`, size),
      );
      using client = new Http1Client(upstream.url);
      const { informed, body, failure } = await client.ask();
      assert.deepEqual(
        { informed, body, failure },
        { informed: [103, 102], body: 'ok', failure: null },
      );
      await client.ask();
      assert.equal(upstream.connections(), 1);
    }
  });
});

const REFUSED: readonly (readonly [what: string, text: string, method?: string])[] = [
  ['that is not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
  ['of HTTP/2', 'HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['of HTTP/0.9', 'HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['of HTTP/1.2', 'HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['of another protocol', 'ICY/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a name of the protocol in lower case', 'http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['that begins with an empty line', `\r\n${OK}Content-Length: 0\r\n\r\n`],
  ['with a status of two digits', 'HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a status of four digits', 'HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a status below 100', 'HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n'],
  ['without a status', 'HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with two spaces before the status', 'HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a tab before the status', 'HTTP/1.1\t200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a status that is not decimal', 'HTTP/1.1 0x1 OK\r\nContent-Length: 0\r\n\r\n'],
  ['with a tab after the status', 'HTTP/1.1 200\tOK\r\nContent-Length: 0\r\n\r\n'],
  ['with NUL in the reason', 'HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n'],
  ['with CR in the reason', 'HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n'],
  ['with LF at the end of the status line', 'HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n'],
  ['with LF at the end of all lines', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n'],
  ['with LF at the end of a field', `${OK}X-A: 1\nContent-Length: 0\r\n\r\n`],
  ['with LF before the end of the head', `${OK}Content-Length: 0\n\r\n`],
  ['with CR in a value', `${OK}X-A: 1\rX-B: 2\r\nContent-Length: 0\r\n\r\n`],
  ['with NUL in a value', `${OK}X-A: 1\0\r\nContent-Length: 0\r\n\r\n`],
  ['with NUL in a name', `${OK}X\0A: 1\r\nContent-Length: 0\r\n\r\n`],
  ['with a space before a colon', `${OK}X-A : 1\r\nContent-Length: 0\r\n\r\n`],
  ['with a space in a name', `${OK}X A: 1\r\nContent-Length: 0\r\n\r\n`],
  ['with a space before a name', `${OK} X-A: 1\r\nContent-Length: 0\r\n\r\n`],
  ['with a folded line', `${OK}X-A: 1\r\n 2\r\nContent-Length: 0\r\n\r\n`],
  ['with a line without a colon', `${OK}X-A\r\nContent-Length: 0\r\n\r\n`],
  ['with a line without a name', `${OK}: 1\r\nContent-Length: 0\r\n\r\n`],
  [
    'with a length and chunks',
    `${OK}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  ],
  [
    'with chunks and a length',
    `${OK}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  ],
  [
    'with chunks and a length, to HEAD',
    `${OK}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n`,
    'HEAD',
  ],
  ['with two lengths', `${OK}Content-Length: 2\r\nContent-Length: 3\r\n\r\nok`],
  ['with the same length twice', `${OK}Content-Length: 2\r\nContent-Length: 2\r\n\r\nok`],
  ['with a list of lengths', `${OK}Content-Length: 2, 2\r\n\r\nok`],
  [
    'with two lengths and the status 304',
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n',
  ],
  ['with a signed length', `${OK}Content-Length: +2\r\n\r\nok`],
  ['with a negative length', `${OK}Content-Length: -2\r\n\r\nok`],
  ['with a hexadecimal length', `${OK}Content-Length: 0x2\r\n\r\nok`],
  ['with a fraction as length', `${OK}Content-Length: 2.0\r\n\r\nok`],
  ['with an empty length', `${OK}Content-Length:\r\n\r\nok`],
  ['with an enormous length', `${OK}Content-Length: 99999999999999999999\r\n\r\nok`],
  ['with an unknown transfer coding', `${OK}Transfer-Encoding: gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n`],
  [
    'with several transfer codings',
    `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  ],
  [
    'with chunks twice',
    `${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  ],
  ['with an empty transfer coding', `${OK}Transfer-Encoding:\r\n\r\n2\r\nok\r\n0\r\n\r\n`],
  ['with the transfer coding identity', `${OK}Transfer-Encoding: identity\r\n\r\nok`],
  [
    'that switches protocols',
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n',
  ],
];

describe('a response of an HTTP/1.1 upstream that is refused (RFC 9112 §11.2)', () => {
  for (const [what, text, method = 'GET'] of REFUSED) {
    it(`is one ${what}, in pieces of any size`, async () => {
      for (const size of SIZES) {
        await using upstream = await rawOrigin(answering(text, size));
        using client = new Http1Client(upstream.url);
        const { failure, status } = await client.ask({ method });
        assert.deepEqual({ failure, status }, { failure: 'upstream-broken sent', status: 0 });
        await until(() => upstream.open() === 0, 'the connection is closed');
      }
    });
  }

  const broken: readonly (readonly [what: string, rest: string, closes?: boolean])[] = [
    ['ends before its length', 'Content-Length: 5\r\n\r\nhell', true],
    ['ends in a chunk', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhell', true],
    ['ends after a chunk', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n', true],
    [
      'ends before the end of its trailers',
      'Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: 1\r\n',
      true,
    ],
    ['has a chunk without a size', 'Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n'],
    ['has a chunk whose size is not a number', 'Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n'],
    [
      'has a chunk with an enormous size',
      'Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello',
    ],
    [
      'has a chunk that is longer than its size',
      'Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n',
    ],
    ['has a chunk that ends with LF', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n'],
    ['has a size that ends with LF', 'Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n'],
    ['has a folded trailer field', 'Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: 1\r\n 2\r\n\r\n'],
  ];
  for (const [what, rest, closes = false] of broken) {
    it(`is broken off where it ${what}, in pieces of any size`, async () => {
      for (const size of SIZES) {
        await using upstream = await rawOrigin(answering(`${OK}${rest}`, size, closes));
        using client = new Http1Client(upstream.url);
        const { failure, status } = await client.ask();
        assert.deepEqual(
          { failure, status },
          { failure: 'upstream-broken responding', status: 200 },
        );
      }
    });
  }

  it('is one that ends within its head, or before it', async () => {
    for (const text of ['', 'HTTP', OK, `${OK}X-A: 1\r\n`, `${OK}X-A: 1\r\n\r`]) {
      await using upstream = await rawOrigin(answering(text, Infinity, true));
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask()).failure, 'upstream-broken sent');
    }
  });

  it('is one whose head or trailer section is too large', async () => {
    const large = `X-A: ${'x'.repeat(90 * 1024)}\r\n`;
    for (const [text, phase] of [
      [`${OK}${large}\r\n`, 'sent'],
      [`${OK}${large}`, 'sent'],
      [`${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n${large}\r\n`, 'responding'],
    ] as const) {
      await using upstream = await rawOrigin(answering(text, Infinity));
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask()).failure, `upstream-broken ${phase}`);
    }
  });

  it('is one that follows too many informational ones', async () => {
    const interim = 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(1001);
    await using upstream = await rawOrigin(answering(`${interim}${OK}\r\n`, Infinity));
    using client = new Http1Client(upstream.url);
    assert.equal((await client.ask()).failure, 'upstream-broken sent');
  });

  it('cannot be the answer to the next request (response splitting)', async () => {
    const SPLIT = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil';
    for (const text of [
      `${OK}Content-Length: 2\r\n\r\nok${SPLIT}`,
      `${OK}Content-Length: 0\r\n\r\n${SPLIT}`,
      `${OK}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n${SPLIT}`,
      `HTTP/1.1 204 No Content\r\n\r\n${SPLIT}`,
    ]) {
      for (const size of SIZES) {
        await using upstream = await rawOrigin((socket, received, connection) => {
          const whole = connection === 1 ? text : `${OK}Content-Length: 4\r\n\r\ngood`;
          answering(whole, size)(socket, received);
        });
        using client = new Http1Client(upstream.url);
        assert.notEqual((await client.ask()).body, 'evil');
        await until(() => size > 7 || upstream.open() === 0, 'the connection is closed');
        assert.equal((await client.ask()).body, 'good');
        assert.equal(upstream.connections(), 2);
      }
    }
  });
});

/** A generator of numbers from 0 up to but not including 1 that a seed determines. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const PARTS = [
  ...[
    'HTTP/1.1',
    'HTTP/1.0',
    ' ',
    '200',
    ' OK',
    '204',
    '304',
    '\r\n',
    '\n',
    '\r',
    '\0',
    '\t',
    ':',
    ';',
    ',',
  ],
  ...[
    'Content-Length',
    'Transfer-Encoding',
    'Connection',
    'close',
    'keep-alive',
    'chunked',
    '2',
    '0',
    '5',
  ],
  ...['ok', 'X-A: b', '\r\n\r\n', '\xe9', 'a', '=', '"', '-', '+', 'gzip'],
];
const SEEDS = [
  `${OK}Content-Length: 2\r\n\r\nok`,
  `${OK}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
  `${OK}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n`,
  'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok',
  `${OK}X-A: b\r\n\r\nok`,
];

function mutated(next: () => number): string {
  const pick = <T>(all: readonly T[]): T => all[Math.floor(next() * all.length)] as T;
  let text = pick(SEEDS);
  for (let changes = Math.ceil(next() * 3); changes > 0; changes -= 1) {
    const at = Math.floor(next() * text.length);
    const removed = Math.floor(next() * 3) * Math.floor(next() * 3);
    text = text.slice(0, at) + (next() < 0.7 ? pick(PARTS) : '') + text.slice(at + removed);
  }
  return text;
}

/** What Node's own client makes of a response: the status and the body, or null if it refuses it. */
async function byNode(url: string): Promise<{ status: number; body: string } | null> {
  const request = http.get(url, { agent: false });
  return await new Promise((resolve) => {
    request.on('error', () => resolve(null));
    request.on('response', (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
      response.on('error', () => {});
      response.on('close', () => {
        const { statusCode: status = 0, complete } = response;
        resolve(complete ? { status, body } : null);
      });
    });
  });
}

/**
 * Node refuses a complete response that more bytes follow. Here, the response is passed on, and the connection
 * is closed: nothing reads those bytes.
 */
async function withoutBytesBehind(text: string, own: Received): Promise<boolean> {
  for (let length = text.length - 1; length > text.indexOf('\r\n\r\n'); length -= 1) {
    await using upstream = await rawOrigin(answering(text.slice(0, length), Infinity, true));
    const node = await byNode(upstream.url);
    if (node !== null) return node.status === own.status && node.body === own.body;
  }
  return false;
}

it('a random response that Node refuses is refused as well, and what both accept is the same', async () => {
  const next = random(20261125);
  let accepted = 0;
  for (let round = 0; round < 600; round += 1) {
    const text = mutated(next);
    await using upstream = await rawOrigin(answering(text, Infinity, true));
    using client = new Http1Client(upstream.url);
    const [node, own] = await Promise.all([byNode(upstream.url), client.ask()]);
    const [status] = own.informed;
    if (own.failure !== null || status !== undefined) continue;
    accepted += 1;
    if (node === null && (await withoutBytesBehind(text, own))) continue;
    assert.deepEqual({ status: own.status, body: own.body }, node, JSON.stringify(text));
  }
  assert.ok(accepted > 50, String(accepted));
});

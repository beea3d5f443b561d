import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Bench, startBench } from './desync-bench.ts';
import { type Field, FLAG, FRAME, frame, headers } from '../support/http2-frames.ts';

/** What catches a hang; nothing here is timed. */
const HOST = 'Host: a.example\r\n';
/** A request that must never be anything but the content of another one. */
const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n';

const cleanUps: (() => unknown)[] = [];
let bench: Bench;
before(async () => {
  bench = await startBench({ after: (cleanUp) => cleanUps.unshift(cleanUp) });
});
after(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

/** Refused as a whole: one answer, the connection closed, and not a byte for the origin. */
async function refused(bytes: string, status = 400): Promise<void> {
  assert.deepEqual(await bench.attack(bytes), {
    statuses: [status],
    requests: [],
    unfinished: [],
  });
}

/** Taken for exactly one request with that content; what follows it on the connection is the next one. */
async function isOne(bytes: string, method: string, target: string, body: string): Promise<void> {
  const { statuses, requests, unfinished } = await bench.attack(bytes);
  assert.deepEqual(statuses, [200, 200]);
  assert.deepEqual(unfinished, []);
  assert.deepEqual(
    requests.map((request) => [request.method, request.target, request.body]),
    [[method, target, body]],
  );
}

function get(...lines: readonly string[]): string {
  return `GET / HTTP/1.1\r\n${HOST}${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
}

function post(lines: readonly string[], content: string): string {
  return `POST / HTTP/1.1\r\n${HOST}${lines.map((line) => `${line}\r\n`).join('')}\r\n${content}`;
}

const CHUNKED_SMUGGLED = `0\r\n\r\n${SMUGGLED}`;

describe('desync, HTTP/1.1: ambiguous heads are rejected (RFC 9112 §11.2)', () => {
  const length = String(CHUNKED_SMUGGLED.length);
  const shapes: Record<string, string> = {
    'CL.TE': post([`Content-Length: ${length}`, 'Transfer-Encoding: chunked'], CHUNKED_SMUGGLED),
    'TE.CL': post(['Transfer-Encoding: chunked', 'Content-Length: 3'], CHUNKED_SMUGGLED),
    'two equal lengths': post(['Content-Length: 1', 'Content-Length: 1'], 'x'),
    'two lengths': post(['Content-Length: 0', `Content-Length: ${SMUGGLED.length}`], SMUGGLED),
    'a list of lengths': post(['Content-Length: 1, 1'], 'x'),
    'a length with a plus': post(['Content-Length: +1'], 'x'),
    'a length with a minus': post(['Content-Length: -1'], 'x'),
    'a hexadecimal length': post(['Content-Length: 0x1'], 'x'),
    'a length of two words': post(['Content-Length: 1 1'], 'x'),
    'an empty length': post(['Content-Length:'], 'x'),
    'a fractional length': post(['Content-Length: 1.0'], 'x'),
    'a length in exponents': post(['Content-Length: 1e0'], 'x'),
    'a length beyond 64 bits': post(['Content-Length: 18446744073709551617'], 'x'),
    'a length that a double cannot hold': post(['Content-Length: 9007199254740993'], 'x'),
    'a length with a space before its colon': post(['Content-Length : 1'], 'x'),
    'a folded length': post(['Content-Length:\r\n 1'], 'x'),
    ...Object.fromEntries(
      [
        'chunked, chunked',
        'chunked, identity',
        'identity',
        'identity, chunked',
        'gzip, chunked',
        'xchunked',
        'chunkedx',
        'chunked;q=1',
        'chunked ;',
        '"chunked"',
        "'chunked'",
        ',chunked',
        'chunked,',
        '\x0bchunked',
        '\x0cchunked',
        'chunked\x0b',
        '\0chunked',
        '\xa0chunked',
        'chun\tked',
        'cow',
        '',
        '\r\n chunked',
        '\n chunked',
        'chunked\r\n x: y',
      ].map((coding) => [
        `TE.TE: Transfer-Encoding: ${JSON.stringify(coding)}`,
        post([`Transfer-Encoding: ${coding}`], CHUNKED_SMUGGLED),
      ]),
    ),
    'two chunked codings': post(
      ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
      CHUNKED_SMUGGLED,
    ),
    'chunked and another coding': post(
      ['Transfer-Encoding: chunked', 'Transfer-Encoding: cow'],
      CHUNKED_SMUGGLED,
    ),
    'another coding and chunked': post(
      ['Transfer-Encoding: cow', 'Transfer-Encoding: chunked'],
      CHUNKED_SMUGGLED,
    ),
    'a coding with a space before its colon': post(
      ['Transfer-Encoding : chunked'],
      CHUNKED_SMUGGLED,
    ),
    'a coding behind a bare LF': post(['X: y\nTransfer-Encoding: chunked'], CHUNKED_SMUGGLED),
    'a coding behind a bare CR': post(['X: y\rTransfer-Encoding: chunked'], CHUNKED_SMUGGLED),
    'a coding on a folded line': post(['X: y\r\n Transfer-Encoding: chunked'], CHUNKED_SMUGGLED),
    'a coding on the first line, indented': `POST / HTTP/1.1\r\n Transfer-Encoding: chunked\r\n${HOST}\r\n${CHUNKED_SMUGGLED}`,
    'a coding in HTTP/1.0': `POST / HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n${CHUNKED_SMUGGLED}`,
    'TE.0, the coding after NUL': post(['Transfer-Encoding\0: chunked'], CHUNKED_SMUGGLED),
    'lines that end with a bare LF': 'GET / HTTP/1.1\nHost: a.example\n\n',
    'one line that ends with a bare LF': 'GET / HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n',
    'a head that ends with a bare LF': 'GET / HTTP/1.1\r\nHost: a.example\r\n\n',
    'a head that ends with CR CR LF': 'GET / HTTP/1.1\r\nHost: a.example\r\r\n\r\n',
    'a bare CR in a value': get('X: a\rb'),
    'a folded line': get('X: a', ' b'),
    'a folded line with a tab': get('X: a', '\tb'),
    'a space before the colon': get('X : a'),
    'a tab before the colon': get('X\t: a'),
    'an empty name': get(': a'),
    'a space in a name': get('X Y: a'),
    'no colon': get('XY'),
    'NUL in a name': get('X\0: a'),
    'a byte beyond ASCII in a name': get('X\xff: a'),
    'NUL in a value': get('X: a\0b'),
    'a control character in a value': get('X: a\x01b'),
    'DEL in a value': get('X: a\x7fb'),
    ...Object.fromEntries(
      ['/\0', '/\x01', '/\x7f', '/\ta', '/a b', '/\xff', '/a#b', 'a', '*', 'ftp://a.example/'].map(
        (target) => [
          `the target ${JSON.stringify(target)}`,
          `GET ${target} HTTP/1.1\r\n${HOST}\r\n`,
        ],
      ),
    ),
    'an absolute target with user information': `GET http://u@a.example/ HTTP/1.1\r\n${HOST}\r\n`,
    'an absolute target without a host': `GET http:///x HTTP/1.1\r\n${HOST}\r\n`,
    'no Host': 'GET / HTTP/1.1\r\nX: y\r\n\r\n',
    'two Hosts': get('Host: b.example'),
    'an empty Host': 'GET / HTTP/1.1\r\nHost:\r\n\r\n',
    ...Object.fromEntries(
      [
        'a b',
        'a.example,b.example',
        'u@a.example',
        'a.example/x',
        'a.example:x',
        'a.example#',
        'a.example?x',
        'a.example\\x',
        '[::1',
        'a.example\xff',
        '.',
        '..',
        '...',
        '.a.example',
        'a..example',
        'a.example..',
        '[..]',
        '[...]',
      ].map((host) => [
        `the Host ${JSON.stringify(host)}`,
        `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
      ]),
    ),
    'HTTP/0.9': 'GET /\r\n\r\n',
    ...Object.fromEntries(
      [
        'HTTP/1.2',
        'HTTP/1.10',
        'HTTP/01.1',
        'HTTP/10.0',
        'http/1.1',
        'HTTP/1',
        'HTTP/1.1 x',
        'HTTP/1.1\t',
        'HTTX/1.1',
      ].map((version) => [
        `the version ${JSON.stringify(version)}`,
        `GET / ${version}\r\n${HOST}\r\n`,
      ]),
    ),
    'a WebSocket upgrade with a coding': `${get('Connection: Upgrade', 'Upgrade: websocket', 'Transfer-Encoding: chunked')}${CHUNKED_SMUGGLED}`,
    'a WebSocket upgrade with a length': `${get('Connection: Upgrade', 'Upgrade: websocket', `Content-Length: ${SMUGGLED.length}`)}${SMUGGLED}`,
    'h2c with both framings': `${get('Connection: Upgrade', 'Upgrade: h2c', 'Content-Length: 3', 'Transfer-Encoding: chunked')}${CHUNKED_SMUGGLED}`,
  };
  for (const [name, bytes] of Object.entries(shapes)) {
    it(name, () => refused(bytes));
    // Whoever stands before us may have sent them on in one packet with the request before.
    it(`${name}, after a valid request: only the valid one is served`, async () => {
      const { statuses, requests, unfinished } = await bench.attack(
        `GET /good HTTP/1.1\r\n${HOST}\r\n${bytes}${SMUGGLED}`,
      );
      assert.deepEqual(statuses, [200, 400]);
      assert.deepEqual(
        requests.map(({ target }) => target),
        ['/good'],
      );
      assert.deepEqual(unfinished, []);
    });
  }
});

describe('desync, HTTP/1.1: requests that are rejected with a status of their own', () => {
  for (const line of ['GET / HTTP/0.9', 'GET / HTTP/2.0', 'GET / HTTP/3.0', 'PRI * HTTP/2.0']) {
    it(`${line} has a major version that this connection does not speak (RFC 9110 §15.6.6)`, () =>
      refused(`${line}\r\n${HOST}\r\n${SMUGGLED}`, 505));
  }

  it('CONNECT is not supported for any target (RFC 9110 §15.6.2), and a 405 would need Allow', () =>
    refused(`CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n${SMUGGLED}`, 501));

  it('CONNECT after a valid request waits for its response', async () => {
    const { statuses, requests } = await bench.attack(
      `${get()}CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n${SMUGGLED}`,
    );
    assert.deepEqual(statuses, [200, 501]);
    assert.equal(requests.length, 1);
  });

  for (const method of ['FOO', 'get', 'GETX', 'X-A_B']) {
    it(`the unknown method ${method}`, () =>
      refused(`${method} / HTTP/1.1\r\n${HOST}\r\n${SMUGGLED}`, 501));
  }

  it('an unknown method after a valid request waits for its response', async () => {
    const { statuses, requests } = await bench.attack(
      `${get()}FOO / HTTP/1.1\r\n${HOST}\r\n${SMUGGLED}`,
    );
    assert.deepEqual(statuses, [200, 501]);
    assert.equal(requests.length, 1);
  });

  for (const expectation of ['100-continue, x', 'x', '100-Continue;x', '']) {
    it(`the expectation ${JSON.stringify(expectation)}`, () =>
      refused(post([`Expect: ${expectation}`, 'Content-Length: 5'], 'hello'), 417));
  }

  it('a target beyond 72 KiB is too long', () =>
    refused(`GET /?${'a'.repeat(72 * 1024)} HTTP/1.1\r\n${HOST}\r\n`, 414));

  it('a path beyond 16 KiB is too long, whatever its query', async () => {
    const path = `/${'a'.repeat(16 * 1024 - 1)}`;
    await isOne(
      `GET ${path}?${'b'.repeat(1024)} HTTP/1.1\r\n${HOST}\r\n`,
      'GET',
      `${path}?${'b'.repeat(1024)}`,
      '',
    );
    await refused(`GET ${path}a?b HTTP/1.1\r\n${HOST}\r\n`, 414);
  });

  it('more than 256 fields are too many, and none of them is silently dropped', async () => {
    const many = Array.from({ length: 255 }, (_, i) => `X-${i}: y`);
    await isOne(get(...many), 'GET', '/', '');
    await refused(`${get(...many, 'Content-Length: 47')}${SMUGGLED}`, 431);
    await refused(get(...many, ...many, ...many, ...many, ...many), 431);
  });

  it('a head beyond the limit is too large', () => refused(get(`X: ${'a'.repeat(90_000)}`), 431));
});

describe('desync, HTTP/1.1: ambiguous chunks (RFC 9112 §7.1)', () => {
  const bad: Record<string, string> = {
    'no size': '\r\nhello\r\n0\r\n\r\n',
    'a plus': '+5\r\nhello\r\n0\r\n\r\n',
    'a minus': '-5\r\nhello\r\n0\r\n\r\n',
    '0x': '0x5\r\nhello\r\n0\r\n\r\n',
    'a space before the size': ' 5\r\nhello\r\n0\r\n\r\n',
    'a space behind the size': '5 \r\nhello\r\n0\r\n\r\n',
    'a tab behind the size': '5\t\r\nhello\r\n0\r\n\r\n',
    'a size beyond 64 bits': '10000000000000005\r\nhello\r\n0\r\n\r\n',
    'a size with a letter': '5g\r\nhello\r\n0\r\n\r\n',
    'a size with an underscore': '5_0\r\nhello\r\n0\r\n\r\n',
    'a size that ends with LF': '5\nhello\r\n0\r\n\r\n',
    'a size that ends with CR': '5\rXhello\r\n0\r\n\r\n',
    'a size that ends with CR CR LF': '5\r\r\nhello\r\n0\r\n\r\n',
    'LF everywhere': '5\nhello\n0\n\n',
    'an extension that ends with LF': '5;a\nhello\r\n0\r\n\r\n',
    'an extension of LF alone': '5;\nhello\r\n0\r\n\r\n',
    'an extension with CR': '5;a\rb\r\nhello\r\n0\r\n\r\n',
    'an extension with a control character': '5;a=\x01b\r\nhello\r\n0\r\n\r\n',
    'an extension with NUL': '5;\0\r\nhello\r\n0\r\n\r\n',
    'an empty extension': '5;\r\nhello\r\n0\r\n\r\n',
    'a line in a quoted extension': '5;a="b\r\nc"\r\nhello\r\n0\r\n\r\n',
    'white space before an extension': '5 ;a\r\nhello\r\n0\r\n\r\n',
  };
  for (const [name, content] of Object.entries(bad)) {
    it(name, () => refused(post(['Transfer-Encoding: chunked'], content + SMUGGLED)));
  }

  it('endless extensions', () =>
    refused(
      post(['Transfer-Encoding: chunked'], `5;${'a'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n`),
      413,
    ));

  // The first chunk is good and may be under way: then the message never becomes whole.
  const late: Record<string, string> = {
    'no end behind the data': '5\r\nhello0\r\n\r\n',
    'LF behind the data': '5\r\nhello\n0\r\n\r\n',
    'CR CR LF behind the data': '5\r\nhello\r\r\n0\r\n\r\n',
    'more data than announced': '5\r\nhelloXX0\r\n\r\n',
    'LF behind the last size': '5\r\nhello\r\n0\n\r\n',
    'LF at the very end': '5\r\nhello\r\n0\r\n\n',
    'a bad second size': '5\r\nhello\r\nx\r\n\r\n',
    'a coding in the trailers': '5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n',
    'a length in the trailers': '5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n',
    'LF in the trailers': '5\r\nhello\r\n0\r\nX: y\n\r\n',
    'a folded trailer': '5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n',
    'a trailer with NUL': '5\r\nhello\r\n0\r\nX: \0\r\n\r\n',
  };
  for (const [name, content] of Object.entries(late)) {
    it(name, async () => {
      const bytes = post(['Transfer-Encoding: chunked'], content + SMUGGLED);
      const { statuses, requests, unfinished } = await bench.attack(bytes);
      assert.deepEqual(statuses, [400]);
      assert.deepEqual(requests, []);
      for (const rest of unfinished) {
        assert.match(
          rest,
          /^POST \/ HTTP\/1\.1\r\n[^]*transfer-encoding: chunked\r\n\r\n(?:5\r\nhello(?:\r\n)?)?$/,
        );
      }
    });
  }
});

describe('desync, HTTP/1.1: an unambiguous request reaches the origin as one request', () => {
  for (const method of [
    'GET',
    'HEAD',
    'DELETE',
    'OPTIONS',
    'POST',
    'PUT',
    'PATCH',
    'TRACE',
    'QUERY',
  ]) {
    it(`${method} with a body that looks like a request, by length and in chunks`, async () => {
      const start = `${method} /x HTTP/1.1\r\n${HOST}`;
      const length = `Content-Length: ${SMUGGLED.length}`;
      await isOne(`${start}${length}\r\n\r\n${SMUGGLED}`, method, '/x', SMUGGLED);
      const chunk = `${SMUGGLED.length.toString(16)}\r\n${SMUGGLED}\r\n0\r\n\r\n`;
      await isOne(`${start}Transfer-Encoding: chunked\r\n\r\n${chunk}`, method, '/x', SMUGGLED);
    });
  }

  const alike: Record<string, readonly [bytes: string, body: string]> = {
    'a coding in other letters': [post(['Transfer-Encoding: ChUnKeD'], '1\r\nx\r\n0\r\n\r\n'), 'x'],
    'a tab behind the colon': [post(['Transfer-Encoding:\tchunked'], '1\r\nx\r\n0\r\n\r\n'), 'x'],
    'white space behind a length': [post(['Content-Length: 1'], 'x'), 'x'],
    'zeros before a length': [post(['Content-Length: 0000000001'], 'x'), 'x'],
    'zeros before a size': [
      post(['Transfer-Encoding: chunked'], '0000000001\r\nx\r\n000\r\n\r\n'),
      'x',
    ],
    'a lawful extension': [
      post(['Transfer-Encoding: chunked'], '1;a=b;c="d"\r\nx\r\n0;e\r\n\r\n'),
      'x',
    ],
    'names with underscores': [
      post(['Content-Length: 1', 'Content_Length: 9', 'Transfer_Encoding: chunked'], 'x'),
      'x',
    ],
    'Connection that nominates the length': [
      post(['Connection: Content-Length', 'Content-Length: 1'], 'x'),
      'x',
    ],
    'Connection that nominates the coding and Host': [
      post(
        ['Connection: Transfer-Encoding, Host', 'Transfer-Encoding: chunked'],
        '1\r\nx\r\n0\r\n\r\n',
      ),
      'x',
    ],
    'a Host in the trailers': [
      post(
        ['Transfer-Encoding: chunked', 'Trailer: Host, Content-Length'],
        '1\r\nx\r\n0\r\nHost: b.example\r\n\r\n',
      ),
      'x',
    ],
    'an upgrade to h2c with a body': [
      post(
        [
          'Connection: Upgrade, HTTP2-Settings',
          'Upgrade: h2c',
          'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA',
          `Content-Length: ${SMUGGLED.length}`,
        ],
        SMUGGLED,
      ),
      SMUGGLED,
    ],
    'an upgrade to two protocols': [
      post(['Connection: Upgrade', 'Upgrade: websocket, h2c', 'Content-Length: 1'], 'x'),
      'x',
    ],
    'empty lines before the request': [`\r\n\r\n${post(['Content-Length: 1'], 'x')}`, 'x'],
    'a Host twice by an absolute target': [
      `POST http://a.example/ HTTP/1.1\r\n${HOST}Content-Length: 1\r\n\r\nx`,
      'x',
    ],
  };
  for (const [name, [bytes, body]] of Object.entries(alike)) {
    it(name, () => isOne(bytes, 'POST', '/', body));
  }

  it('an absolute target decides which host the origin sees (RFC 9112 §3.2.2)', async () => {
    const { requests } = await bench.attack(`GET http://b.example/x HTTP/1.1\r\n${HOST}\r\n`);
    assert.deepEqual(
      requests.map(({ target, fields }) => [target, fields.filter(([name]) => name === 'host')]),
      [['/x', [['host', 'b.example']]]],
    );
  });

  it('hop-by-hop fields are those listed in Connection, except fields of the gateway', async () => {
    const { requests } = await bench.attack(
      get('Connection: X-Secret, X-Forwarded-For, Via, Host', 'X-Secret: y', 'X-Kept: z'),
    );
    const names = requests[0]?.fields.map(([name]) => name) ?? [];
    assert.ok(!names.includes('x-secret'));
    for (const name of ['x-kept', 'x-forwarded-for', 'via', 'host'])
      assert.ok(names.includes(name));
  });

  it('a WebSocket upgrade after an unanswered request is refused after the response to that request', async () => {
    const upgrade = get('Connection: Upgrade', 'Upgrade: websocket');
    const { statuses, requests } = await bench.attack(`${get()}${upgrade}${SMUGGLED}`);
    assert.deepEqual(statuses, [200, 400]);
    assert.equal(requests.length, 1);
  });

  it('pauses within the head and the body change nothing', async () => {
    const bytes = post(['Content-Length: 5'], 'hello');
    for (const at of [3, 20, bytes.length - 5, bytes.length - 2]) {
      const { statuses, requests } = await bench.attack(bytes.slice(0, at), bytes.slice(at));
      assert.deepEqual(statuses, [200, 200]);
      assert.deepEqual(
        requests.map(({ body }) => body),
        ['hello'],
      );
    }
  });

  it('bytes after a request that closes the connection are not read (RFC 9112 §9.6)', async () => {
    const { statuses, requests } = await bench.attack(`${get('Connection: close')}${SMUGGLED}`);
    assert.deepEqual(statuses, [200]);
    assert.deepEqual(
      requests.map(({ target }) => target),
      ['/'],
    );
  });
});

describe('desync, HTTP/1.1: bodies that the gateway itself does not read', () => {
  for (const [name, head, content] of [
    ['CL.0: a length', `Content-Length: ${SMUGGLED.length}`, SMUGGLED],
    [
      'TE.0: chunks',
      'Transfer-Encoding: chunked',
      `${SMUGGLED.length.toString(16)}\r\n${SMUGGLED}\r\n0\r\n\r\n`,
    ],
  ] as const) {
    for (const method of ['GET', 'POST', 'OPTIONS']) {
      it(`${name}, ${method}`, async () => {
        const bytes = `${method} /static HTTP/1.1\r\n${HOST}${head}\r\n\r\n`;
        for (const parts of [[bytes + content], [bytes, content]]) {
          const { statuses, requests } = await bench.attack(...parts);
          assert.deepEqual(statuses, [200, 200]);
          assert.deepEqual(requests, []);
        }
      });
    }
  }

  it('0.CL: an Expect request whose body arrives without a 100 response', async () => {
    const head = `POST /static HTTP/1.1\r\n${HOST}Expect: 100-continue\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n`;
    for (const parts of [[head + SMUGGLED], [head, SMUGGLED]]) {
      const { statuses, requests } = await bench.attack(...parts);
      assert.deepEqual(statuses, [200]);
      assert.deepEqual(requests, []);
    }
  });

  it('an Expect request whose body reaches the origin', async () => {
    const head = `POST / HTTP/1.1\r\n${HOST}Expect: 100-continue\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n`;
    const { statuses, requests } = await bench.attack(head, SMUGGLED);
    assert.deepEqual(statuses, [100, 200, 200]);
    assert.deepEqual(
      requests.map(({ body, fields }) => [body, fields.some(([name]) => name === 'expect')]),
      [[SMUGGLED, true]],
    );
  });
});

type Pseudo = Partial<Record<':method' | ':scheme' | ':authority' | ':path', string | null>>;

const DEFAULTS = { ':method': 'POST', ':scheme': 'https', ':authority': 'localhost', ':path': '/' };

/** The fields of a request, some of its pseudo-header fields changed or, with null, left out. */
function fields(changed: Pseudo, ...more: readonly Field[]): Field[] {
  const pseudo = Object.entries({ ...DEFAULTS, ...changed });
  return [
    ...pseudo.flatMap(([name, value]): Field[] => (value === null ? [] : [[name, value]])),
    ...more,
  ];
}

const whole = (changed: Pseudo, ...more: readonly Field[]): Buffer[] => [
  headers(1, fields(changed, ...more)),
];
const withBody = (body: string, changed: Pseudo, ...more: readonly Field[]): Buffer[] => [
  headers(1, fields(changed, ...more), FLAG.endHeaders),
  frame(FRAME.data, FLAG.endStream, 1, body),
];

describe('desync, HTTP/2: malformed requests do not reach the origin (RFC 9113 §8.1.1)', () => {
  const request = 'GET /x HTTP/1.1\r\nHost: e\r\n\r\n';
  const shapes: Record<string, Buffer[]> = {
    'H2.CL: no length but data': withBody(SMUGGLED, {}, ['content-length', '0']),
    'H2.CL: a length that is too short': withBody('hello', {}, ['content-length', '3']),
    'H2.CL: a length that is too long': withBody('hello', {}, ['content-length', '30']),
    'a length without data': whole({}, ['content-length', '5']),
    'two lengths': withBody('hello', {}, ['content-length', '5'], ['content-length', '6']),
    'two equal lengths': withBody('hello', {}, ['content-length', '5'], ['content-length', '5']),
    'a list of lengths': withBody('hello', {}, ['content-length', '5, 5']),
    'a length with a plus': withBody('hello', {}, ['content-length', '+5']),
    'H2.TE': withBody(CHUNKED_SMUGGLED, {}, ['transfer-encoding', 'chunked']),
    'H2.TE with a length': withBody(
      'hello',
      {},
      ['transfer-encoding', 'x'],
      ['content-length', '5'],
    ),
    'capitals in a name': withBody(CHUNKED_SMUGGLED, {}, ['Transfer-Encoding', 'chunked']),
    connection: whole({}, ['connection', 'close']),
    'connection that nominates the length': withBody(
      'hello',
      {},
      ['connection', 'content-length'],
      ['content-length', '5'],
    ),
    'keep-alive': whole({}, ['keep-alive', 'timeout=1']),
    'proxy-connection': whole({}, ['proxy-connection', 'x']),
    upgrade: whole({}, ['upgrade', 'h2c']),
    'te other than trailers': whole({}, ['te', 'gzip']),
    'a path with CR LF': whole({ ':path': `/ HTTP/1.1\r\nHost: e\r\n\r\n${request}` }),
    'a path with LF': whole({ ':path': '/\nx' }),
    'a path with a version': whole({ ':path': '/ HTTP/1.1' }),
    'a path with a tab': whole({ ':path': '/\tx' }),
    'a path with NUL': whole({ ':path': '/\0' }),
    'a path beyond ASCII': whole({ ':path': '/\xff' }),
    'a path with a fragment': whole({ ':path': '/a#b' }),
    'an empty path': whole({ ':path': '' }),
    'a path without a slash': whole({ ':path': 'x' }),
    'an absolute path': whole({ ':path': 'https://localhost/' }),
    'an asterisk for POST': whole({ ':path': '*' }),
    'no path': whole({ ':path': null }),
    'no method': whole({ ':method': null }),
    'no scheme': whole({ ':scheme': null }),
    'a method with CR LF': whole({ ':method': `GET / HTTP/1.1\r\nX: y\r\n\r\nPOST` }),
    'a method with a path': whole({ ':method': 'GET /admin' }),
    'an empty method': whole({ ':method': '' }),
    'an authority with CR LF': whole({ ':authority': 'localhost\r\nX: y' }),
    'an authority with a space': whole({ ':authority': 'local host' }),
    'an authority with user information': whole({ ':authority': 'u@localhost' }),
    'an authority with a path': whole({ ':authority': 'localhost/x' }),
    'an authority with a comma': whole({ ':authority': 'localhost,b.example' }),
    'an authority with an empty label': whole({ ':authority': '...' }),
    'an empty authority': whole({ ':authority': '' }),
    'neither authority nor host': whole({ ':authority': null }),
    'a host that differs from the authority': whole({}, ['host', 'b.example']),
    'two hosts': whole({ ':authority': null }, ['host', 'localhost'], ['host', 'localhost']),
    'a scheme with CR LF': whole({ ':scheme': 'https\r\nX: y' }),
    'a scheme with a host': whole({ ':scheme': 'https://b.example/x?' }),
    'two methods': whole({}, [':method', 'GET']),
    'two paths': whole({}, [':path', '/x']),
    'two authorities': whole({}, [':authority', 'b.example']),
    'a pseudo-header field behind others': whole(
      { ':authority': null },
      ['x', 'y'],
      [':authority', 'localhost'],
    ),
    'an unknown pseudo-header field': whole({}, [':x', 'y']),
    'a pseudo-header field of responses': whole({}, [':status', '200']),
    'a protocol without CONNECT': whole({}, [':protocol', 'websocket']),
    'an extended CONNECT to a bad path': [
      headers(
        1,
        fields({ ':method': 'CONNECT', ':path': '/a#b' }, [':protocol', 'websocket']),
        FLAG.endHeaders,
      ),
    ],
    'another expectation': withBody('hello', {}, ['expect', 'x']),
    'too many fields': whole({}, ...Array.from({ length: 300 }, (_, i): Field => [`x-${i}`, 'y'])),
    'a path beyond 72 KiB': [
      frame(FRAME.headers, FLAG.endStream, 1, Buffer.alloc(0)),
      frame(FRAME.continuation, FLAG.endHeaders, 1, Buffer.alloc(0)),
    ],
    'a coding in the trailers': [
      headers(1, fields({}), FLAG.endHeaders),
      frame(FRAME.data, 0, 1, 'hello'),
      headers(1, [['transfer-encoding', 'chunked']]),
    ],
    'a pseudo-header field in the trailers': [
      headers(1, fields({}), FLAG.endHeaders),
      frame(FRAME.data, 0, 1, 'hello'),
      headers(1, [[':path', '/x']]),
    ],
    'trailers that do not end the request': [
      headers(1, fields({}), FLAG.endHeaders),
      frame(FRAME.data, 0, 1, 'hello'),
      headers(1, [['x', 'y']], FLAG.endHeaders),
    ],
  };
  for (const [name, frames] of Object.entries(shapes)) {
    it(name, async () => {
      let outcome: unknown;
      const { requests } = await bench.attackHttp2(async (client) => {
        client.send(...frames);
        outcome = await client.outcome(1);
      });
      assert.ok(
        typeof outcome === 'number' ? outcome >= 400 && outcome < 500 : outcome !== undefined,
        String(outcome),
      );
      assert.deepEqual(requests, []);
    });
  }
});

describe('desync, HTTP/2: requests that are rejected with a status of their own', () => {
  for (const method of ['FOO', 'post', 'GETX', 'X-A_B']) {
    it(`the unknown method ${method}`, async () => {
      let outcome: unknown;
      const { requests } = await bench.attackHttp2(async (client) => {
        client.send(...whole({ ':method': method }));
        outcome = await client.outcome(1);
      });
      assert.equal(outcome, 501);
      assert.deepEqual(requests, []);
    });
  }

  it('CONNECT without a protocol (RFC 9110 §15.6.2)', async () => {
    let outcome: unknown;
    const { requests } = await bench.attackHttp2(async (client) => {
      const connect = [[':method', 'CONNECT'] as const, [':authority', 'localhost:80'] as const];
      client.send(headers(1, connect, FLAG.endHeaders));
      outcome = await client.outcome(1);
    });
    assert.equal(outcome, 501);
    assert.deepEqual(requests, []);
  });
});

describe('desync, HTTP/2: each request reaches the origin as one request', () => {
  for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'POST']) {
    for (const [name, more] of [
      ['without a length', []],
      ['with its length', [['content-length', String(SMUGGLED.length)]]],
    ] as const) {
      it(`${method} with data ${name}`, async () => {
        const { requests, unfinished } = await bench.attackHttp2(async (client) => {
          client.send(...withBody(SMUGGLED, { ':method': method }, ...more));
          assert.equal(await client.outcome(1), 200);
        });
        assert.deepEqual(unfinished, []);
        assert.deepEqual(
          requests.map((request) => [request.method, request.body]),
          [[method, SMUGGLED]],
        );
      });
    }
  }

  // nghttp2 leaves these fields out instead of refusing the request, and tells nobody.
  for (const [name, value] of [
    ['x', 'a\r\ny: z'],
    ['x', 'a\ny: z'],
    ['x', 'a\rb'],
    ['x', 'a\0b'],
    ['x', ' a'],
    ['x\r\ny', 'z'],
    ['x: y\r\nz', 'z'],
    ['x:y', 'z'],
    ['x y', 'z'],
    ['transfer-encoding ', 'chunked'],
    ['transfer-encoding:', 'chunked'],
    ['content-length ', '0'],
    ['', 'x'],
  ] as const) {
    it(`the field ${JSON.stringify(`${name}: ${value}`)} is not forwarded in any form`, async () => {
      const { requests } = await bench.attackHttp2(async (client) => {
        client.send(...withBody('hello', {}, [name, value], ['x-kept', 'y']));
        assert.equal(await client.outcome(1), 200);
      });
      assert.equal(requests.length, 1);
      const [request] = requests;
      assert.equal(request?.body, 'hello');
      const ours = /^(?:host|connection|x-forwarded-.*|via|traceparent|transfer-encoding|x-kept)$/;
      assert.deepEqual(
        request?.fields.filter(([key]) => !ours.test(key)),
        [],
      );
    });
  }

  it('trailers contain no fields for framing or routing', async () => {
    const { requests } = await bench.attackHttp2(async (client) => {
      client.send(
        headers(1, fields({}, ['trailer', 'host, x-t']), FLAG.endHeaders),
        frame(FRAME.data, 0, 1, 'hello'),
        headers(1, [
          ['host', 'b.example'],
          ['x-t', 'y'],
        ]),
      );
      assert.equal(await client.outcome(1), 200);
    });
    assert.deepEqual(
      requests.map(({ body }) => body),
      ['hello'],
    );
  });

  it('split cookie fields become one field (RFC 9113 §8.2.3)', async () => {
    const { requests } = await bench.attackHttp2(async (client) => {
      client.send(...whole({}, ['cookie', 'a=b'], ['cookie', 'c=d']));
      assert.equal(await client.outcome(1), 200);
    });
    const cookies = requests[0]?.fields.filter(([name]) => name === 'cookie');
    assert.deepEqual(cookies, [['cookie', 'a=b; c=d']]);
  });
});

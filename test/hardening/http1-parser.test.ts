import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { answer } from '../../src/http/answer.ts';
import { requestTarget } from '../../src/server/strict-request.ts';
import { settled } from '../support/settled.ts';
import { portOf, serveExchanges } from '../unit/http/exchange-server.ts';
import { rounds } from '../support/rounds.ts';

/** Random messages. */
const ROUNDS = rounds(2_000, 4_000);
const AT_ONCE = 16;
const SEED = Number(process.env['HUBGATE_PARSER_SEED'] ?? 20_261_125);

/** A request as a server has understood it. */
interface Taken {
  readonly method: string;
  readonly target: string;
  readonly fields: readonly string[];
  /** With the trailer fields; null while it has not arrived completely. */
  body: readonly string[] | null;
}

describe('the HTTP/1.1 parser beside that of Node', () => {
  it(`accepts none of ${ROUNDS} random messages that Node refuses, and reads the others alike`, async (test) => {
    const random = generator(SEED);
    // Made before anything is sent, so that the messages do not depend on which connection is faster.
    const messages = Array.from({ length: ROUNDS }, () => ({
      text: mutated(random),
      seed: random(2 ** 32),
    }));
    const ours = await serveOurs(test);
    const nodes = await serveNodes(test);
    let accepted = 0;
    let refused = 0;
    const round = async (): Promise<void> => {
      for (let next = messages.pop(); next !== undefined; next = messages.pop()) {
        const { text, seed } = next;
        const [mine, theirs] = await Promise.all([
          ours(text, generator(seed)),
          nodes(text, generator(seed)),
        ]);
        if (mine.length > 0) accepted += 1;
        else refused += 1;
        const whole = mine.filter(({ body }) => body !== null);
        assert.deepEqual(
          whole.map(comparable),
          theirs.slice(0, whole.length).map(comparable),
          `${JSON.stringify(text)} is read differently`,
        );
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, round));
    // Otherwise the test would say nothing.
    assert.ok(accepted > ROUNDS / 10 && refused > ROUNDS / 10, `${accepted} and ${refused}`);
  });
});

/** Without what a gateway changes on purpose: an absolute target, and what concerns one connection only. */
function comparable(taken: Taken): Taken {
  const { target, fields } = taken;
  const pairs: [name: string, value: string][] = [];
  for (let i = 0; i < fields.length; i += 2) pairs.push([fields[i] ?? '', fields[i + 1] ?? '']);
  const isNominated = pairs.some(([name, value]) => /^connection$/i.test(name) && /x/i.test(value));
  const dropped = isNominated ? /_|^(?:host|connection|x)$/i : /_|^(?:host|connection)$/i;
  return {
    ...taken,
    target: requestTarget(target)?.target ?? target,
    fields: pairs.filter(([name]) => !dropped.test(name)).flat(),
  };
}

type Random = (below: number) => number;

/** A linear congruential generator, so that a failure can be repeated. */
function generator(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const PIECES = [
  ...[
    'GET',
    'POST',
    'PUT',
    'HEAD',
    'OPTIONS',
    'QUERY',
    'get',
    'FOO',
    ' ',
    '  ',
    '\t',
    '\r\n',
    '\n',
  ],
  ...['\r', '/', '/a?b=c', '*', 'http://a/', ' HTTP/1.1', ' HTTP/1.0', ' HTTP/1.2', ' http/1.1'],
  ...['Host: a', 'Host : a', 'X: y', 'X:y\t', ': z', 'X', ' folded', 'X: \0', 'X: \x7f', 'X: \xff'],
  ...['Content-Length: 5', 'Content-Length: 05', 'Content-Length: +5', 'content-length: 5, 5'],
  ...[
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: gzip, chunked',
    'Transfer-Encoding:\tChunked',
  ],
  ...[
    'Connection: close',
    'Connection: keep-alive',
    'Connection: x, close',
    'Expect: 100-continue',
  ],
  ...[
    'hello',
    '5\r\nhello\r\n',
    '0\r\n\r\n',
    '0\r\nT: u\r\n\r\n',
    '5;a=b\r\nhello\r\n',
    '5;\r\nhello\r\n',
  ],
  ...[
    '00000000005\r\nhello\r\n',
    '5 \r\nhello\r\n',
    'A\r\n0123456789\r\n',
    '-1\r\n',
    '5\nhello\n',
    '',
  ],
];

const MESSAGES = [
  'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
  'GET /x?y HTTP/1.1\r\nHost: a\r\nX: y\r\nConnection: close\r\n\r\n',
  'GET / HTTP/1.0\r\n\r\n',
  'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello',
  'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
  'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\r\nhello\r\n3\r\nyou\r\n0\r\nT: u\r\n\r\n',
  '\r\nPUT http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n',
];

/**
 * One to three messages with a few random changes. A tab after a Content-Length or a Transfer-Encoding is taken
 * out: it is optional whitespace (RFC 9110 §5.5), but Node does not read it as such.
 */
function mutated(random: Random): string {
  const pick = <T>(from: readonly T[]): T => from[random(from.length)] as T;
  let text = Array.from({ length: 1 + random(3) }, () => pick(MESSAGES)).join('');
  for (let changes = random(4); changes > 0; changes -= 1) {
    const at = random(text.length + 1);
    const removed = random(2) === 0 ? random(4) : 0;
    const put = random(3) === 0 ? String.fromCharCode(random(256)) : pick(PIECES);
    text = text.slice(0, at) + put + text.slice(at + removed);
  }
  return text.replace(/^((?:content-length|transfer-encoding):[^\r\n]*?)[ \t]*\t[ \t]*$/gim, '$1');
}

type Serve = (text: string, random: Random) => Promise<readonly Taken[]>;

async function serveOurs(test: TestContext): Promise<Serve> {
  const taken = new Map<number, Taken[]>();
  const server = await serveExchanges(async (exchange) => {
    const { method, originalTarget: target, headers } = exchange;
    const one: Taken = { method, target, fields: headers.toRaw(), body: null };
    taken.get(exchange.remotePort)?.push(one);
    let body = '';
    for await (const chunk of exchange.body) body += String(chunk);
    one.body = [body, ...exchange.trailers().toRaw()];
    answer(exchange, 200, {}, 'ok');
  });
  test.after(() => server.close());
  return (text, random) => send(server.http1, text, random, taken);
}

async function serveNodes(test: TestContext): Promise<Serve> {
  const taken = new Map<number, Taken[]>();
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    const { method = '', url: target = '', rawHeaders: fields } = request;
    const one: Taken = { method, target, fields, body: null };
    taken.get(request.socket.remotePort ?? 0)?.push(one);
    let body = '';
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      one.body = [body, ...request.rawTrailers];
      response.end('ok');
    });
  });
  // The requests before the error are still to be read.
  server.on('clientError', (_error, socket) => void setTimeout(() => socket.destroy(), 50));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (text, random) => send(portOf(server), text, random, taken);
}

/** Sends a text in a few writes, and resolves with the requests that the server has taken until nothing more comes. */
async function send(
  port: number,
  text: string,
  random: Random,
  taken: Map<number, Taken[]>,
): Promise<readonly Taken[]> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  const requests: Taken[] = [];
  const { localPort = 0 } = socket;
  taken.set(localPort, requests);
  let received = 0;
  socket.on('data', (chunk) => (received += chunk.length));
  for (let at = 0; at < text.length; ) {
    const size = 1 + random(text.length);
    socket.write(text.slice(at, at + size), 'latin1');
    at += size;
    await new Promise((resolve) => setImmediate(resolve));
  }
  // What is incomplete waits for more; nothing more is sent.
  await Promise.race([settled(() => received), closed]);
  socket.destroy();
  taken.delete(localPort);
  return requests;
}

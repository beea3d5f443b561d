import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import net from 'node:net';
import { Readable, Writable } from 'node:stream';
import { after, before, describe, it, mock, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { bufferPool } from '../../../src/http/buffer-pool.ts';
import { BodyFlow, WIDE_MARKS } from '../../../src/proxy/body-flow.ts';
import {
  MAX_WIDE_BODIES,
  NARROW_READ_BYTES,
  upstreamReads,
} from '../../../src/proxy/upstream-reads.ts';
import { RECORD, streamRecords } from '../../../src/proxy/fastcgi/records.ts';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';
import { portOf } from '../http/exchange-server.ts';

const MB = 1024 * 1024;
const BODY_BYTES = 8 * MB;
/** Pieces of what is sent, from both ends of what apps do. */
const PIECES = [64 * 1024, 8 * 1024];
/** Each hold gives at least what lies between the marks. */
const MAX_HOLDS_PER_MB = MB / (WIDE_MARKS.high - WIDE_MARKS.low);
/** What is given back to a connection is read again, and joined with what has come meanwhile. */
const MAX_GIVEN_BACK = 2;

const chunk = Buffer.alloc(1000);

/** Bytes of a piece of which an HTTP/2 stream sends only the first part: its window is 65,535 bytes. */
const CUT_BYTES = 128 * 1024;

/** A stream that has sent as much as its window permits, of a piece that `write` writes. */
async function cutStream(
  test: TestContext,
  write: (stream: http2.ClientHttp2Stream) => void,
): Promise<http2.ClientHttp2Stream> {
  let received = 0;
  let isFull: () => void = () => {};
  const full = new Promise<void>((resolve) => {
    isFull = resolve;
  });
  const server = http2.createServer().on('stream', (stream) => {
    stream.on('error', () => {});
    const push = stream.push.bind(stream);
    stream.push = (piece: Buffer | null, encoding) => {
      received += piece?.length ?? 0;
      if (received === 65_535) isFull();
      return push(piece, encoding);
    };
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const session = http2.connect(`http://127.0.0.1:${portOf(server)}`).on('error', () => {});
  test.after(() => {
    session.destroy();
    server.close();
  });
  const stream = session.request({ ':method': 'PUT' }, { endStream: false });
  stream.on('error', () => {});
  write(stream);
  await full;
  return stream;
}

describe('the flow of a body', () => {
  it('keeps the memory of a piece when its stream is destroyed, for which Node may report success while it still sends', async (test) => {
    const piece = bufferPool.copy(Buffer.alloc(CUT_BYTES), 0, CUT_BYTES);
    const nothing = (): void => {};
    let reportTaken: () => void = () => {};
    const taken = new Promise<void>((resolve) => {
      reportTaken = resolve;
    });
    const stream = await cutStream(test, (body) => {
      const write = body.write.bind(body);
      Object.assign(body, {
        write: (bytes: Buffer, done: (error?: Error | null) => void) =>
          write(bytes, (error) => {
            reportTaken();
            done(error);
          }),
      });
      const source = { pause: nothing, resume: nothing };
      new BodyFlow(body, source, { held: nothing, taken: nothing, freed: nothing }).write(piece);
    });
    stream.destroy();
    await once(stream, 'close');
    await taken;
    assert.equal(piece.buffer.byteLength, CUT_BYTES);
    assert.notEqual(bufferPool.copy(piece, 0, CUT_BYTES).buffer, piece.buffer, 'used again');
  });

  it('pauses its source above the high mark and resumes it below the low mark', () => {
    const waiting: (() => void)[] = [];
    const body = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => void waiting.push(done),
    });
    const told: string[] = [];
    const say = (what: string) => () => void told.push(what);
    const flow = new BodyFlow(
      body,
      { pause: say('pause'), resume: say('resume') },
      { held: say('held'), taken: say('taken'), freed: say('freed') },
    );
    let written = 0;
    while (!flow.isHeld) {
      flow.write(chunk);
      written += chunk.length;
    }
    assert.ok(written > WIDE_MARKS.high && written <= WIDE_MARKS.high + chunk.length);
    assert.deepEqual(told, ['pause', 'held']);
    let left = written;
    return (async () => {
      while (flow.isHeld) {
        waiting.shift()?.();
        await turn();
        left -= chunk.length;
      }
      assert.ok(left <= WIDE_MARKS.low && left > WIDE_MARKS.low - chunk.length);
      assert.deepEqual(told.slice(-2), ['freed', 'resume']);
      assert.equal(told.filter((what) => what === 'pause').length, 1);
    })();
  });

  it('reads once for each of many clients that read nothing, and does not pause for clients that read at once', () => {
    const ends = Array.from({ length: MAX_WIDE_BODIES + 1 }, () => upstreamReads.begin());
    const read = Buffer.alloc(NARROW_READ_BYTES);
    const flowTo = (write: Writable['_write']): BodyFlow =>
      new BodyFlow(
        new Writable({ write }),
        { pause() {}, resume() {} },
        { held() {}, taken() {}, freed() {} },
      );
    const slow = flowTo(() => {});
    slow.write(read);
    assert.ok(slow.isHeld);
    const fast = flowTo((_chunk, _encoding, done) => done());
    for (let reads = 0; reads < 10; reads += 1) fast.write(read);
    assert.ok(!fast.isHeld);
    for (const end of ends) end();
    slow.end();
    fast.end();
  });
});

const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.unshift(cleanUp) };
let ports: { readonly plain: number; readonly tls: number; readonly ca: string };

/** An app that answers with pieces and without a length, or says how much it was sent. */
function app(request: Readable, path: string, response: Writable): void {
  if (path.endsWith('/up')) {
    let bytes = 0;
    request.on('data', (piece: Buffer) => (bytes += piece.length));
    request.on('end', () => response.end(String(bytes)));
    return;
  }
  const piece = Buffer.alloc(Number(path.split('/').at(-1)), 'x');
  let left = BODY_BYTES;
  const more = (): void => {
    while (left > 0) {
      left -= piece.length;
      if (!response.write(piece)) {
        response.once('drain', more);
        return;
      }
    }
    response.end();
  };
  more();
}

async function listen(server: net.Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  owner.after(() => server.close());
  return portOf(server);
}

/** A script that answers so as soon as it has been asked, or has been sent all. */
function script(socket: net.Socket): void {
  let bytes = 0;
  let [path, isAnswered] = ['', false];
  const end = Buffer.from([1, RECORD.endRequest, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
  const head = Buffer.from('Content-Type: text/plain\r\n\r\n');
  const body = new Writable({
    highWaterMark: 1,
    write: (piece: Buffer, _encoding, done) =>
      void socket.write(streamRecords(RECORD.stdout, piece), () => done()),
    final: (done) => {
      socket.end(end);
      done();
    },
  });
  socket.on('error', () => {});
  socket.on('data', (piece: Buffer) => {
    bytes += piece.length;
    path ||= /REQUEST_URI([^]+?)QUERY_STRING/.exec(piece.toString('latin1'))?.[1] ?? '';
    const isUp = path.includes('/up');
    if (isAnswered || (isUp && bytes < BODY_BYTES)) return;
    isAnswered = true;
    body.write(head);
    app(Readable.from([]).resume(), isUp ? `/${BODY_BYTES}` : path.replace(/[^/\w]/g, ''), body);
  });
}

before(async () => {
  const http1App = await listen(
    http.createServer((request, response) => app(request, request.url ?? '', response)),
  );
  const http2App = await listen(
    http2.createServer((request, response) => {
      request.stream.on('error', () => {});
      response.writeHead(200);
      app(request, request.url, request.stream);
    }),
  );
  const scripts = await listen(net.createServer(script));
  const [plain, tls] = [await freePort(), await freePort()];
  const routes = `{
	TLS
	handle /http2/* {
		reverse_proxy h2c://127.0.0.1:${http2App}
	}
	handle /script/* {
		reverse_proxy 127.0.0.1:${scripts} {
			transport fastcgi
		}
	}
	reverse_proxy 127.0.0.1:${http1App}
}
`;
  const { root } = await startGateway(
    owner,
    `http://localhost:${plain} ${routes.replace('TLS', '')}https://localhost:${tls} ${routes.replace('TLS', 'tls internal')}`,
  );
  ports = { plain, tls, ca: await root() };
});
after(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

type Ask = (path: string, body: Readable | null) => Promise<Readable>;

const CLIENTS: Readonly<Record<string, Ask>> = {
  'HTTP/1.1': async (path, body) => {
    const options = { port: ports.plain, host: 'localhost', agent: false };
    return asked(http.request({ ...options, path, ...methodOf(body) }), body);
  },
  'HTTP/1.1 over TLS': async (path, body) => {
    const options = { port: ports.tls, host: 'localhost', agent: false, ca: ports.ca };
    return asked(https.request({ ...options, path, ...methodOf(body) }), body);
  },
  'HTTP/2 over TLS': async (path, body) => {
    const session = http2.connect(`https://localhost:${ports.tls}`, { ca: ports.ca });
    const stream = session.request(
      { ':path': path, ...(body === null ? {} : { ':method': 'PUT', ...lengthOf }) },
      { endStream: body === null },
    );
    stream.once('close', () => session.close());
    body?.pipe(stream);
    return stream;
  },
};

const lengthOf = { 'content-length': String(BODY_BYTES) };

function methodOf(body: Readable | null): http.RequestOptions {
  return body === null ? {} : { method: 'PUT', headers: lengthOf };
}

async function asked(request: http.ClientRequest, body: Readable | null): Promise<Readable> {
  if (body === null) request.end();
  else body.pipe(request);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return response;
}

function pieces(size: number): Readable {
  const piece = Buffer.alloc(size, 'x');
  return Readable.from(Array.from({ length: BODY_BYTES / size }, () => piece));
}

/** How often sources were held, and how many bytes were given back to connections, meanwhile. */
async function counted(work: () => Promise<void>): Promise<{ holds: number; givenBack: number }> {
  let [holds, givenBack] = [0, 0];
  const { write } = BodyFlow.prototype;
  const writing = mock.method(
    BodyFlow.prototype,
    'write',
    function counting(this: BodyFlow, piece: Buffer): void {
      const wasHeld = this.isHeld;
      Reflect.apply(write, this, [piece]);
      if (this.isHeld && !wasHeld) holds += 1;
    },
  );
  const { unshift } = Readable.prototype;
  const giving = mock.method(
    Readable.prototype,
    'unshift',
    function counting(this: Readable, ...all: Parameters<typeof unshift>): void {
      givenBack += (all[0] as Buffer | null)?.length ?? 0;
      Reflect.apply(unshift, this, all);
    },
  );
  try {
    await work();
  } finally {
    writing.mock.restore();
    giving.mock.restore();
  }
  return { holds, givenBack };
}

describe('a body without a length that passes through the gateway', () => {
  for (const [client, ask] of Object.entries(CLIENTS)) {
    for (const upstream of ['http1', 'http2', 'script']) {
      for (const size of PIECES) {
        it(`is seldom paused from ${upstream} to ${client} in pieces of ${size} bytes`, async () => {
          let bytes = 0;
          const { holds, givenBack } = await counted(async () => {
            const answer = await ask(`/${upstream}/${size}`, null);
            for await (const piece of answer as AsyncIterable<Buffer>) bytes += piece.length;
          });
          assert.equal(bytes, BODY_BYTES);
          const perMb = holds / (BODY_BYTES / MB);
          assert.ok(perMb <= MAX_HOLDS_PER_MB, `${perMb} holds in each MB`);
          assert.ok(givenBack <= MAX_GIVEN_BACK * BODY_BYTES, `${givenBack} bytes given back`);
        });
      }
      it(`is seldom paused from ${client} to ${upstream}`, async () => {
        let text = '';
        const { holds, givenBack } = await counted(async () => {
          const answer = await ask(`/${upstream}/up`, pieces(64 * 1024));
          for await (const piece of answer) text += String(piece).slice(0, 10);
        });
        if (upstream !== 'script') assert.equal(text, String(BODY_BYTES));
        const perMb = holds / (BODY_BYTES / MB);
        assert.ok(perMb <= MAX_HOLDS_PER_MB, `${perMb} holds in each MB`);
        assert.ok(givenBack <= MAX_GIVEN_BACK * BODY_BYTES, `${givenBack} bytes given back`);
      });
    }
  }
});

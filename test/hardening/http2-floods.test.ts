import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type ClientHttp2Session, connect, type IncomingHttpHeaders } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { brotli, MAX_NETWORK_BYTES } from '../../src/http/encoders.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import {
  block,
  connectRaw,
  errorCode,
  type Field,
  FLAG,
  FRAME,
  frame,
  headers,
  literal,
  type RawHttp2,
} from '../support/http2-frames.ts';

/** What catches a hang; nothing here is timed. */
const CANCEL = 8;
const COMPRESSION_ERROR = 9;
const ENHANCE_YOUR_CALM = 11;
const MAX_FRAME = 16_384;

const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.unshift(cleanUp) };
const sent = { bytes: 0 };
let site: { readonly port: number; readonly ca: string };

before(async () => {
  const app = createServer((request, response) => {
    // `/hold` never answers, `/pour` and `/text` never end.
    if (request.url === '/text') response.setHeader('Content-Type', 'text/plain');
    if (request.url === '/pour' || request.url === '/text') pour(response);
    else if (request.url !== '/hold') response.end('ok');
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  owner.after(() => {
    app.closeAllConnections();
    app.close();
  });
  const address = app.address();
  assert.ok(address !== null && typeof address === 'object');
  const port = await freePort();
  const { root } = await startGateway(
    owner,
    `https://localhost:${port} {\n\ttls internal\n\trespond /ok ok\n\tencode\n\treverse_proxy 127.0.0.1:${address.port}\n}\n`,
  );
  site = { port, ca: await root() };
});
after(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

describe('HTTP/2 floods: the connection is closed, and no other client is affected', () => {
  const floods: Record<string, (client: RawHttp2) => void> = {
    'rapid reset (CVE-2023-44487)': (client) => {
      for (let i = 0; i < 1500; i += 1) {
        client.send(headers(2 * i + 1, get('/hold')), reset(2 * i + 1));
      }
    },
    'rapid reset of what is answered at once': (client) => {
      for (let i = 0; i < 1500; i += 1)
        client.send(headers(2 * i + 1, get('/ok')), reset(2 * i + 1));
    },
    'resets that we are made to send (CVE-2025-8671)': (client) => {
      for (let i = 0; i < 1500; i += 1) {
        const stream = 2 * i + 1;
        // RFC 9113 §6.9: an increment of nothing is an error of its stream.
        const nothing = frame(FRAME.windowUpdate, 0, stream, Buffer.alloc(4));
        client.send(headers(stream, get('/hold')), nothing);
      }
    },
    'CONTINUATION without end (CVE-2024-27316)': (client) => {
      client.send(frame(FRAME.headers, FLAG.endStream, 1, block(get('/ok'))));
      for (let i = 0; i < 1000; i += 1) {
        client.send(frame(FRAME.continuation, 0, 1, block([[`x-${i}`, 'y'.repeat(1000)]])));
      }
    },
    'empty CONTINUATION': (client) => {
      client.send(frame(FRAME.headers, FLAG.endStream, 1, block(get('/ok'))));
      for (let i = 0; i < 10_000; i += 1) client.send(frame(FRAME.continuation, 0, 1));
    },
    'PING (CVE-2019-9512)': (client) => {
      for (let i = 0; i < 20_000; i += 1) client.send(frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    },
    'SETTINGS (CVE-2019-9515)': (client) => {
      for (let i = 0; i < 20_000; i += 1) client.send(frame(FRAME.settings, 0, 0));
    },
    'empty DATA (CVE-2019-9518)': (client) => {
      client.send(headers(1, fields('POST', '/hold'), FLAG.endHeaders));
      for (let i = 0; i < 5000; i += 1) client.send(frame(FRAME.data, 0, 1));
    },
    'frames of a size that they cannot have': (client) => {
      client.send(frame(FRAME.ping, 0, 0, 'short'));
    },
    'a frame beyond the size that was agreed on': (client) => {
      client.send(headers(1, fields('POST', '/hold'), FLAG.endHeaders));
      client.send(frame(FRAME.data, 0, 1, Buffer.alloc(MAX_FRAME + 1)));
    },
    'a stream with an even number': (client) => client.send(headers(2, get('/ok'))),
    'a field beyond what nghttp2 decodes': (client) => {
      client.send(...inFrames(1, block([...get('/ok'), ['x', 'y'.repeat(65_537)]])));
    },
    'more streams than were agreed on, again and again': (client) => {
      for (let i = 0; i < 2000; i += 1) client.send(headers(2 * i + 1, get('/hold')));
    },
  };
  for (const [name, flood] of Object.entries(floods)) {
    it(name, async () => {
      const bystander = await connectRaw(owner, site.port, site.ca);
      const client = await connectRaw(owner, site.port, site.ca);
      flood(client);
      await client.untilEnded();
      bystander.send(headers(1, get('/ok')));
      assert.equal(await bystander.outcome(1), 200);
      bystander.socket.destroy();
      const newcomer = await connectRaw(owner, site.port, site.ca);
      newcomer.send(headers(1, get('/')));
      assert.equal(await newcomer.outcome(1), 200);
      newcomer.socket.destroy();
    });
  }
});

describe('HTTP/2 limits: the resources of one connection', () => {
  it('250 concurrent streams are served; one more closes the connection', async () => {
    const client = await connectRaw(owner, site.port, site.ca);
    for (let i = 0; i < 250; i += 1) client.send(headers(2 * i + 1, get('/hold')));
    await client.settled();
    assert.ok(!client.frames.some(({ type }) => type === FRAME.reset || type === FRAME.goAway));
    client.send(headers(501, get('/hold')));
    await client.untilEnded();
  });

  it('a header bomb of references to one large field (RFC 7541 §7.3)', async () => {
    const client = await connectRaw(owner, site.port, site.ca);
    // With indexing: 4,000 bytes become the first entry of the dynamic table, index 62.
    const entry = Buffer.concat([Buffer.from([0x40]), literal('x'), literal('y'.repeat(4000))]);
    client.send(
      ...inFrames(1, Buffer.concat([block(get('/ok')), entry, Buffer.alloc(16_000, 0x80 + 62)])),
    );
    const outcome = await client.outcome(1);
    assert.ok(outcome === 'reset' || outcome === 'goaway' || outcome === 431, String(outcome));
    client.socket.destroy();
  });

  it('a header list beyond max_header_size, in fields that are each small enough', async () => {
    const client = await connectRaw(owner, site.port, site.ca);
    const large = Array.from({ length: 3 }, (_, i): Field => [`x-${i}`, 'y'.repeat(30_000)]);
    client.send(...inFrames(1, block([...get('/ok'), ...large])));
    const refusal = await client.until(({ type, stream }) => type === FRAME.reset && stream === 1);
    assert.equal(errorCode(refusal), ENHANCE_YOUR_CALM);
    client.send(headers(3, get('/ok')));
    assert.equal(await client.outcome(3), 200);
    client.socket.destroy();
  });

  it('a 64 KiB token in a field is accepted if its bytes fit, and otherwise closes the connection', async () => {
    const client = await connectRaw(owner, site.port, site.ca);
    const token = (length: number): Field => ['authorization', 'a'.repeat(length)];
    client.send(...inFrames(1, block([...get('/ok'), token(65_536)])));
    assert.equal(await client.outcome(1), 200);
    client.send(...inFrames(3, block([...get('/ok'), token(65_537)])));
    const goAway = await client.until(({ type }) => type === FRAME.goAway);
    // A limit of nghttp2 that nothing in Node raises.
    assert.equal(errorCode(goAway), COMPRESSION_ERROR);
  });

  it('response bodies for windows that never open are not read from the origin', async () => {
    const client = await connectRaw(owner, site.port, site.ca);
    const settings = Buffer.alloc(6);
    settings.writeUInt16BE(4, 0);
    client.send(frame(FRAME.settings, 0, 0, settings));
    const streams = 50;
    for (let i = 0; i < streams; i += 1) client.send(headers(2 * i + 1, get('/pour')));
    for (let i = 0; i < streams; i += 1) assert.equal(await client.outcome(2 * i + 1), 200);
    let last = -1;
    for (let still = 0; still < 100; ) {
      await new Promise((resolve) => setImmediate(resolve));
      still = sent.bytes === last ? still + 1 : 0;
      last = sent.bytes;
    }
    // Mostly what the two sockets of the system hold on loopback.
    assert.ok(sent.bytes < streams * 8 * 1024 * 1024, `${sent.bytes} bytes`);
    client.socket.destroy();
  });

  it('responses that nobody reads are compressed only while there is memory', async () => {
    const url = `https://localhost:${site.port}`;
    const options = { ca: site.ca, settings: { initialWindowSize: 0 } };
    const client = connect(url, options);
    const most = Math.floor(MAX_NETWORK_BYTES / brotli.bytes);
    assert.equal(await compressedOf(client, most + 50), most);
    client.destroy();
    // The gateway notices the end of the connection soon.
    const newcomer = connect(url, options);
    while ((await compressedOf(newcomer, 1)) === 0);
    newcomer.destroy();
  });
});

function get(path: string): Field[] {
  return fields('GET', path);
}

function fields(method: string, path: string): Field[] {
  return [
    [':method', method],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', path],
  ];
}

function reset(stream: number): Buffer {
  const code = Buffer.alloc(4);
  code.writeUInt32BE(CANCEL);
  return frame(FRAME.reset, 0, stream, code);
}

/** A header block in as many frames as it needs. */
function inFrames(stream: number, bytes: Buffer): Buffer[] {
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += MAX_FRAME) {
    const isLast = at + MAX_FRAME >= bytes.length;
    const flags = (isLast ? FLAG.endHeaders : 0) | (at === 0 ? FLAG.endStream : 0);
    const type = at === 0 ? FRAME.headers : FRAME.continuation;
    frames.push(frame(type, flags, stream, bytes.subarray(at, at + MAX_FRAME)));
  }
  return frames;
}

/** The number of compressed ones among responses that the client does not read. */
async function compressedOf(client: ClientHttp2Session, requests: number): Promise<number> {
  const encodings = await Promise.all(
    Array.from({ length: requests }, async () => {
      const request = client.request({ ':path': '/text', 'accept-encoding': 'br' });
      request.on('error', () => {});
      const [head]: [IncomingHttpHeaders] = (await once(request, 'response')) as [
        IncomingHttpHeaders,
      ];
      return head['content-encoding'];
    }),
  );
  return encodings.filter((one) => one === 'br').length;
}

/** A body that goes on for as long as it is taken. */
function pour(response: ServerResponse): void {
  const chunk = Buffer.alloc(64 * 1024);
  const write = (): void => {
    do {
      sent.bytes += chunk.length;
    } while (response.write(chunk));
  };
  response.on('drain', write);
  write();
}

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createHttp2Server, type Http2Session } from 'node:http2';
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import { createGzip, gzipSync } from 'node:zlib';
import { RECORD, streamRecords } from '../../src/proxy/fastcgi/records.ts';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { connectRaw, type Field, FLAG, frame, FRAME, headers } from '../support/http2-frames.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

/** Connections that are dropped. */
const DROPS = rounds(160, 10_000);
/** Drops between two looks at the health of the gateway. */
const DROPS_PER_LOOK = 20;
/** Connections that are open at once. */
const AT_ONCE = 4;
const MAX_STREAMS = 100;
/** Catches a gateway that answers no more, before it has taken all memory; nothing here is timed. */
const PATIENCE_MS = 120_000;

const PAGE = Buffer.from(
  `<!doctype html><html><head><title>t</title></head><body>${'<p>words</p>'.repeat(90_000)}</body></html>`,
);
const SMALL_PAGE = PAGE.subarray(0, 60_000);
const ZIPPED = gzipSync(PAGE);

/** What a client of a drop asks for; between them they reach every way in which a body is written. */
const REQUESTS: readonly (readonly Field[])[] = [
  ...[
    '/page',
    '/small',
    '/zipped',
    '/chunks',
    '/endless',
    '/hold',
    '/published',
    '/encoded/page',
    '/encoded/endless',
    '/http2/page',
    '/http2/endless',
    '/script',
    '/script/encoded',
    '/files/large.bin',
    '/files/page.html',
    '/encoded/files/page.html',
    '/guarded',
    '/failing',
    '/said',
    '/.well-known/hub?match=a',
    '/.well-known/hub?match=*',
  ].map((path) => get(path)),
  [...get('/small'), ['hub-live', 'urn:uuid:1']],
  [...get('/files/large.bin'), ['range', 'bytes=1000-900000']],
  [...get('/encoded/page'), ['accept-encoding', 'br']],
  ...['/page', '/http2/page', '/script'].map((path) => fields('POST', path)),
  [...fields('CONNECT', '/socket'), [':protocol', 'websocket'], ['sec-websocket-version', '13']],
  [...fields('CONNECT', '/hold'), [':protocol', 'websocket'], ['sec-websocket-version', '13']],
];

function get(path: string): readonly Field[] {
  return [...fields('GET', path), ['accept-encoding', 'gzip']];
}

function fields(method: string, path: string): readonly Field[] {
  return [
    [':method', method],
    [':scheme', 'https'],
    [':path', path],
    [':authority', 'localhost'],
  ];
}

describe('HTTP/2 connections that are dropped', () => {
  it('do not harm the gateway, whatever it was writing to them', async (test) => {
    const site = await startSite(test);
    const random = seeded(Number(process.env['HUBGATE_TEST_SEED'] ?? 1));
    for (let dropped = 0; dropped < DROPS; dropped += DROPS_PER_LOOK) {
      const hung = setTimeout(() => site.gateway.child.kill('SIGKILL'), PATIENCE_MS);
      try {
        for (let batch = 0; batch < DROPS_PER_LOOK; batch += AT_ONCE) {
          await Promise.all(Array.from({ length: AT_ONCE }, () => dropOne(site, random)));
        }
        assert.equal((await send(`${site.plain}/said`)).status, 200);
      } catch (cause) {
        throw new Error(`The gateway does not answer after ${dropped} drops and some`, { cause });
      } finally {
        clearTimeout(hung);
      }
    }
    await allClosed(site.gateway.child.pid ?? 0);
    assert.equal(await site.gateway.end('SIGTERM'), 0, site.gateway.output.slice(-4000));
  });
});

/**
 * Waits until the gateway has closed the sockets of all clients that have left. Before Node 26 some of them are
 * noticed only by the checks of `http2-guards.ts`. The system lists no socket that its peer has reset, so these are
 * the descriptors of sockets that stand in no list.
 */
async function allClosed(pid: number): Promise<void> {
  if (process.platform !== 'linux') return;
  while ((await unlistedSockets(pid)) > 0) await delay(500);
}

async function unlistedSockets(pid: number): Promise<number> {
  const names = await readdir(`/proc/${pid}/fd`);
  const targets = await Promise.all(
    names.map((name) => readlink(`/proc/${pid}/fd/${name}`).catch(() => '')),
  );
  const inodes = targets.flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []);
  const lists = await Promise.all(
    ['tcp', 'tcp6', 'udp', 'udp6', 'unix'].map((list) =>
      readFile(`/proc/${pid}/net/${list}`, 'utf8').catch(() => ''),
    ),
  );
  const listed = new Set(lists.join('\n').split(/\s+/));
  return inodes.filter((inode) => !listed.has(inode)).length;
}

/** Opens a connection, asks for up to 100 things on it, and drops it at some moment. */
async function dropOne(site: Site, random: () => number): Promise<void> {
  const owner = { after: () => {} };
  const client = await connectRaw(owner, site.port, site.ca);
  client.socket.on('error', () => {});
  const below = (limit: number): number => Math.floor(random() * limit);
  // One kind of request for all streams, or any for each.
  const kind = random() < 0.5 ? below(REQUESTS.length) : null;
  const streams = 1 + below(random() < 0.5 ? 8 : MAX_STREAMS);
  if (random() < 0.5) client.send(windowUpdate(0, 8_000_000));
  for (let index = 0; index < streams; index += 1) {
    const request = REQUESTS[kind ?? below(REQUESTS.length)] ?? [];
    const stream = 2 * index + 1;
    const isOpen = request[0]?.[1] !== 'GET';
    client.send(headers(stream, request, FLAG.endHeaders | (isOpen ? 0 : FLAG.endStream)));
    if (isOpen) client.send(frame(FRAME.data, 0, stream, Buffer.alloc(below(4000), 'x')));
    if (random() < 0.1) client.send(windowUpdate(stream, 200_000));
    if (random() < 0.05) client.send(frame(FRAME.reset, 0, stream, Buffer.from([0, 0, 0, 8])));
  }
  const untilFrames = below(3) * below(40);
  const untilTurns = below(200);
  for (let turns = 0; turns < untilTurns && !client.closed; turns += 1) {
    if (untilFrames > 0 && client.frames.length > untilFrames) break;
    await turn();
  }
  // With bytes unread the system resets the connection, else it ends it.
  if (random() < 0.3) client.socket.end();
  client.socket.destroy();
  await client.untilClosed();
}

function windowUpdate(stream: number, bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(FRAME.windowUpdate, 0, stream, payload);
}

/** Numbers from 0 up to 1, the same in each run (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Site {
  readonly gateway: TestProcess;
  /** Of HTTPS. */
  readonly port: number;
  readonly ca: string;
  /** Origin of the same without TLS, where its health is asked. */
  readonly plain: string;
}

/** A gateway in a process of its own: one that hangs must not hold up who notices. */
async function startSite(test: TestContext): Promise<Site> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-drops-'));
  removeWith(test, directory);
  await mkdir(join(directory, 'files'));
  await writeFile(join(directory, 'files', 'large.bin'), Buffer.alloc(3_000_000, 'x'));
  await writeFile(join(directory, 'files', 'page.html'), PAGE);
  const [port, plainPort] = [await freePort(), await freePort()];
  const [app, http2App, scripts] = await Promise.all([
    startApp(test),
    startHttp2App(test),
    startScripts(test),
  ]);
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{
	admin off
	storage ${directory}/storage
	auto_https disable_redirects
}
http://localhost:${plainPort} {
	respond /said said
}
https://localhost:${port} {
	tls internal
	hub {
		issuer https://issuer.example {
			publisher {
				jwt "a publisher key of more than 32 bytes, for tests"
			}
		}
		anonymous
		transport memory
	}
	discovery {
		changes public
		live
	}
	encode /encoded/* gzip br
	@script path /script*
	encode /script/encoded gzip
	respond /said "${'said '.repeat(20_000)}"
	root * ${directory}
	@files path_regexp (?:/encoded)?(/files/.*)
	handle @files {
		rewrite * {re.1}
		file_server
	}
	forward_auth /guarded 127.0.0.1:${app} {
		uri /refuse
	}
	handle /http2/* {
		reverse_proxy h2c://127.0.0.1:${http2App}
	}
	handle @script {
		reverse_proxy 127.0.0.1:${scripts} {
			transport fastcgi
		}
	}
	reverse_proxy 127.0.0.1:${app}
	handle_errors {
		rewrite * /page
		reverse_proxy 127.0.0.1:${app}
	}
}
`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Listening on');
  await gateway.says(String(port));
  const ca = await readFile(join(directory, 'storage', 'pki', 'local', 'root.crt'), 'utf8');
  return { gateway, port, ca, plain: `http://localhost:${plainPort}` };
}

async function listening(test: TestContext, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('error', () => {}));
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

const HTML = { 'Content-Type': 'text/html' };

function startApp(test: TestContext): Promise<number> {
  const server = createServer((request, response) => {
    request.on('error', () => {});
    response.on('error', () => {});
    switch (request.url?.replace(/^\/encoded/, '').split('?')[0]) {
      case '/page':
        response.writeHead(200, { ...HTML, 'Content-Length': PAGE.length }).end(PAGE);
        return;
      case '/small':
        response.writeHead(200, { ...HTML, 'Cache-Control': 'public, max-age=9' }).end(SMALL_PAGE);
        return;
      case '/zipped':
        response.writeHead(200, { ...HTML, 'Content-Encoding': 'gzip' }).end(ZIPPED);
        return;
      case '/chunks': {
        response.writeHead(200, { ...HTML, 'Content-Encoding': 'gzip' });
        const gzip = createGzip();
        gzip.pipe(response);
        for (let at = 0; at < PAGE.length; at += 8192) gzip.write(PAGE.subarray(at, at + 8192));
        gzip.end();
        return;
      }
      case '/endless':
        response.writeHead(200, HTML).write(SMALL_PAGE);
        return;
      case '/published':
        response.writeHead(200, { ...HTML, 'Hub-Publish': 'topic="urn:t"; body' }).end(SMALL_PAGE);
        return;
      case '/failing':
        response.writeHead(200, { ...HTML, 'Content-Length': PAGE.length }).write(SMALL_PAGE);
        setImmediate(() => response.destroy());
        return;
      case '/refuse':
        response.writeHead(401, HTML).end(PAGE);
        return;
      case '/hold':
        return;
      default:
        response.writeHead(404).end();
    }
  });
  server.on('upgrade', (request, socket) => {
    socket.on('error', () => {});
    if (request.url === '/hold') return;
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n',
    );
    socket.write(`Sec-WebSocket-Accept: ${acceptOf(request.headers['sec-websocket-key'])}\r\n\r\n`);
    socket.write(SMALL_PAGE);
    socket.pipe(socket);
  });
  return listening(test, server);
}

/** RFC 6455 §4.2.2. */
function acceptOf(key = ''): string {
  return createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
}

function startHttp2App(test: TestContext): Promise<number> {
  const sessions = new Set<Http2Session>();
  const server = createHttp2Server();
  server.on('session', (session) => {
    sessions.add(session.on('error', () => {}));
    session.once('close', () => sessions.delete(session));
  });
  server.on('stream', (stream, { ':path': path }) => {
    stream.on('error', () => {});
    stream.respond({ ':status': 200, 'content-type': 'text/html' });
    if (path === '/http2/endless') stream.write(SMALL_PAGE);
    else stream.end(PAGE);
  });
  return listening(test, server);
}

/** A server of FastCGI that gives every request the same page. */
function startScripts(test: TestContext): Promise<number> {
  const head = Buffer.from('Content-Type: text/html\r\n\r\n');
  const end = Buffer.from([1, RECORD.endRequest, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
  const answer = Buffer.concat([streamRecords(RECORD.stdout, Buffer.concat([head, PAGE])), end]);
  const server = createTcpServer((socket) => {
    socket.once('data', () => socket.end(answer));
  });
  return listening(test, server);
}

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';
import { WebSocket, WebSocketServer } from 'ws';
import { systemClock } from '../../src/kernel/clock.ts';
import { LocalAuthority } from '../../src/tls/local-authority.ts';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';

/** The longest silence before the first probe. */
const PROBE_SECONDS = 30;

const CASES = [
  { client: 'HTTP/1.1', secure: false, upstreamSecure: false },
  { client: 'HTTP/1.1 within TLS', secure: true, upstreamSecure: true },
  { client: 'HTTP/2', secure: true, upstreamSecure: false },
  { client: 'HTTP/2', secure: true, upstreamSecure: true },
] as const;

// Only Linux shows the timers of its sockets.
describe('a silent WebSocket', { skip: process.platform !== 'linux' }, () => {
  for (const { client, secure, upstreamSecure } of CASES) {
    const upstreamName = upstreamSecure ? 'an HTTPS upstream' : 'an HTTP upstream';
    it(`makes the operating system check for dead peers on both sides: ${client} to ${upstreamName}`, async (test) => {
      const upstream = await startUpstream(test, upstreamSecure);
      const port = await freePort();
      const { root } = await startLibraryGateway(
        test,
        `${secure ? 'https' : 'http'}://localhost:${port} {\n${secure ? '\ttls internal\n' : ''}${upstream.directive}}\n`,
      );
      const ca = secure ? await root() : '';
      await (client === 'HTTP/2' ? openHttp2(test, port, ca) : openHttp1(test, port, secure, ca));
      const sides = {
        client: await idleTimer((socket) => socket.local === port),
        upstream: await idleTimer((socket) => socket.remote === upstream.port),
      };
      for (const [side, seconds] of Object.entries(sides)) {
        assert.ok(seconds <= PROBE_SECONDS, `${side}: first probe after ${seconds} s`);
      }
    });
  }
});

async function openHttp1(test: TestContext, port: number, secure: boolean, ca: string) {
  const socket = new WebSocket(`${secure ? 'wss' : 'ws'}://localhost:${port}/`, { ca });
  test.after(() => socket.terminate());
  await once(socket, 'open');
}

async function openHttp2(test: TestContext, port: number, ca: string): Promise<void> {
  const session = connectHttp2(`https://localhost:${port}`, { ca });
  test.after(() => session.destroy());
  await once(session, 'remoteSettings');
  const stream = session.request({
    ...{ ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/' },
    'sec-websocket-version': '13',
  });
  stream.on('error', () => {});
  const [headers] = await once(stream, 'response');
  assert.equal(headers[':status'], 200);
}

async function startUpstream(
  test: TestContext,
  secure: boolean,
): Promise<{ port: number; directive: string }> {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-keep-alive-'));
  test.after(() => rmSync(directory, { recursive: true, force: true }));
  const authority = new LocalAuthority(directory, systemClock);
  const { chain, key } = await authority.issue(['localhost']);
  const server = secure ? createHttpsServer({ cert: chain, key }) : createHttpServer();
  const sockets = new WebSocketServer({ server });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.close();
  });
  // A server that listens on TCP has an AddressInfo.
  const { port } = server.address() as AddressInfo;
  const directive = secure
    ? `\treverse_proxy https://localhost:${port} {\n\t\ttransport http {\n\t\t\ttls_trust_pool ${authority.rootFile}\n\t\t}\n\t}\n`
    : `\treverse_proxy 127.0.0.1:${port}\n`;
  return { port, directive };
}

interface SystemSocket {
  readonly local: number;
  readonly remote: number;
  /** The kind of timer that runs, and what is left of it in seconds. */
  readonly timer: { readonly kind: string; readonly seconds: number };
}

/**
 * Seconds until the first keep-alive probe of the one connection of this process that is wanted. A client
 * that was slow to connect by one family of addresses has tried the other as well, and lets one of the two go.
 */
async function idleTimer(wanted: (socket: SystemSocket) => boolean): Promise<number> {
  for (let looks = 1; ; looks += 1) {
    const found = established().filter(wanted);
    if (found.length !== 1 && looks < MOST_LOOKS) {
      await after(LOOK_AGAIN_MS);
      continue;
    }
    assert.equal(found.length, 1);
    const timer = found[0]?.timer;
    assert.ok(timer !== undefined && timer.kind !== NO_TIMER, 'keep-alive is off');
    if (timer.kind === KEEP_ALIVE_TIMER) return timer.seconds;
    // Something is still to be acknowledged: that timer hides the other until then.
    await new Promise((turn) => setImmediate(turn));
  }
}

const LOOK_AGAIN_MS = 20;
const MOST_LOOKS = 500;
const NO_TIMER = '00';
const KEEP_ALIVE_TIMER = '02';
const ESTABLISHED = '01';
/** Unit of the times in /proc/net/tcp. */
const TICKS_PER_SECOND = 100;

function established(): SystemSocket[] {
  const lines = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) =>
    readFileSync(file, 'latin1').trimEnd().split('\n').slice(1),
  );
  const own = ownSockets();
  return lines.flatMap((line) => {
    const [, local = '', remote = '', state, , timer = '', , , , inode = ''] = line
      .trim()
      .split(/\s+/);
    // Ports of other programs may have the same number.
    if (state !== ESTABLISHED || !own.delete(`socket:[${inode}]`)) return [];
    const [kind = '', ticks = ''] = timer.split(':');
    const seconds = Number.parseInt(ticks, 16) / TICKS_PER_SECOND;
    return [{ local: portIn(local), remote: portIn(remote), timer: { kind, seconds } }];
  });
}

/** Names of the sockets that this process has open; while the table is read one may be listed twice. */
function ownSockets(): Set<string> {
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return 'closed meanwhile';
    }
  });
  return new Set(names.filter((name) => name.startsWith('socket:')));
}

function portIn(address: string): number {
  return Number.parseInt(address.slice(address.lastIndexOf(':') + 1), 16);
}

import { createCipheriv, createHash, randomInt } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import { createServer } from 'node:http';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import tls from 'node:tls';

/** Bytes of which no two places are alike, the same for the same seed. */
class SeededBytes {
  readonly #cipher;

  constructor(seed: string) {
    const key = createHash('sha256').update(seed).digest().subarray(0, 16);
    this.#cipher = createCipheriv('aes-128-ctr', key, Buffer.alloc(16));
  }

  next(count: number): Buffer {
    return this.#cipher.update(Buffer.alloc(count));
  }
}

/** How one end of a tunnel behaves. */
export interface EndOptions {
  readonly total: number;
  /** What it sends and what it must receive. */
  readonly sends: string;
  readonly receives: string;
  /** Received bytes after which it vanishes; without, it stays until everything has been passed on. */
  readonly vanishesAfter?: number;
  /** Turns of the event loop between two pieces that it reads. */
  readonly slowness?: number;
  /** Largest size of the pieces that it writes. */
  readonly largest?: number;
}

/** Sends and checks at one end of a tunnel. Resolves with the received bytes when the end has closed. */
export async function useEnd(end: Duplex, options: EndOptions): Promise<number> {
  const { total, largest = 300_000, vanishesAfter = Infinity, slowness = 0 } = options;
  const [own, other] = [new SeededBytes(options.sends), new SeededBytes(options.receives)];
  let [received, hasSent] = [0, false];
  let wrong: Error | null = null;
  const closed = new Promise<void>((resolve) => void end.once('close', resolve));
  end.on('error', () => {});
  const endIfDone = (): void => {
    if (hasSent && received === total) end.end();
  };
  end.on('data', (chunk: Buffer) => {
    if (!chunk.equals(other.next(chunk.length)) && wrong === null) {
      wrong = new Error(`${options.receives}: wrong bytes after ${received}`);
      end.destroy();
    }
    received += chunk.length;
    if (received >= vanishesAfter) end.destroy();
    else if (slowness > 0) void pauseFor(end, slowness);
    endIfDone();
  });
  end.once('end', () => end.end());
  end.resume();
  for (let left = total; left > 0 && end.writable; ) {
    const size = Math.min(left, randomInt(1, largest));
    left -= size;
    if (end.write(own.next(size))) continue;
    await Promise.race([closed, new Promise((resolve) => void end.once('drain', resolve))]);
  }
  hasSent = true;
  endIfDone();
  await closed;
  if (wrong !== null) throw wrong;
  return received;
}

async function pauseFor(end: Duplex, turns: number): Promise<void> {
  end.pause();
  for (let i = 0; i < turns; i += 1) await turn();
  end.resume();
}

interface TunnelOrigin {
  readonly url: string;
  [Symbol.asyncDispose](): Promise<void>;
}

/** An upstream whose tunnels `use` takes over, with the path of the request. */
export async function tunnelOrigin(
  use: (end: Duplex, path: string) => void,
): Promise<TunnelOrigin> {
  const ends = new Set<Duplex>();
  const server = createServer().on('upgrade', (request, socket, head) => {
    ends.add(socket);
    socket.once('close', () => ends.delete(socket));
    const accept = createHash('sha1')
      .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
        `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    if (head.length > 0) socket.unshift(head);
    use(socket, request.url ?? '');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const end of ends) end.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Opens a tunnel whose bytes are not framed, by an HTTP/1.1 upgrade or an extended CONNECT. */
export function openTunnel(port: number, path: string, way: TunnelWay): Promise<Duplex> {
  if (way.isHttp2) return connectHttp2(port, path, way.isTls);
  return upgradeHttp1(port, path, way.isTls);
}

export interface TunnelWay {
  readonly isTls: boolean;
  readonly isHttp2: boolean;
}

async function upgradeHttp1(port: number, path: string, isTls: boolean): Promise<Duplex> {
  const address = { port, host: '127.0.0.1' };
  const socket = isTls
    ? tls.connect({ ...address, servername: 'localhost', rejectUnauthorized: false })
    : net.connect(address);
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  let head = Buffer.alloc(0);
  while (!head.includes('\r\n\r\n')) {
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    head = Buffer.concat([head, chunk]);
    socket.pause();
    if (!head.includes('\r\n\r\n')) socket.resume();
  }
  const end = head.indexOf('\r\n\r\n') + 4;
  if (!head.toString('latin1').startsWith('HTTP/1.1 101 ')) throw new Error(head.toString());
  if (head.length > end) socket.unshift(head.subarray(end));
  return socket;
}

async function connectHttp2(port: number, path: string, isTls: boolean): Promise<Duplex> {
  const { stream, headers } = await extendedConnect(port, path, isTls);
  if (Number(headers[':status']) !== 200) throw new Error(`status ${String(headers[':status'])}`);
  return stream;
}

/** Sends an extended CONNECT (RFC 8441), and returns the fields of the response to it. */
export async function extendedConnect(
  port: number,
  path: string,
  isTls = false,
): Promise<{ stream: Duplex; headers: http2.IncomingHttpHeaders }> {
  const session = http2.connect(`${isTls ? 'https' : 'http'}://localhost:${port}`, {
    rejectUnauthorized: false,
  });
  session.on('error', () => {});
  await once(session, 'remoteSettings');
  const stream = session.request({
    ...{ ':method': 'CONNECT', ':protocol': 'websocket', ':path': path },
    ...{ ':authority': `localhost:${port}`, 'sec-websocket-version': '13' },
  });
  stream.once('close', () => session.destroy());
  const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
  return { stream, headers };
}

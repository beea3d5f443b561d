import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import type { Owner } from '../support/http.ts';
import { connectRaw, type RawHttp2 } from '../support/http2-frames.ts';
import { type RawOrigin, startRawOrigin } from '../support/raw-origin.ts';
import { readRequests, type StrictRequest } from '../support/strict-http1.ts';

/** The gateway between attacks and an origin that keeps every byte. `/static` is answered by the gateway. */
export interface Bench {
  readonly http: number;
  /** Sends bytes as they are, in as many writes, each once the one before has been worked through. */
  attack(...parts: readonly string[]): Promise<Outcome>;
  attackHttp2(use: (client: RawHttp2) => Promise<unknown>): Promise<Reached>;
}

interface Outcome extends Reached {
  readonly statuses: readonly number[];
}

/** What the origin got, by a reading that tolerates nothing. */
interface Reached {
  readonly requests: readonly StrictRequest[];
  /** The beginnings of requests that never became whole, on connections that have been cut. */
  readonly unfinished: readonly string[];
}

const FENCE = '/fence';

export async function startBench(test: Owner): Promise<Bench> {
  const origin = await startRawOrigin(test, isAnswerable);
  const [http, https] = [await freePort(), await freePort()];
  const routes = `\trespond /static "ok"\n\treverse_proxy 127.0.0.1:${origin.port}\n`;
  const { root } = await startGateway(
    test,
    `http://:${http} {\n${routes}}\nhttps://localhost:${https} {\n\ttls internal\n${routes}}\n`,
  );
  const ca = await root();
  return {
    http,
    async attack(...parts) {
      const before = lengths(origin);
      const statuses = await exchange(http, parts);
      return { statuses, ...(await reached(origin, http, before)) };
    },
    async attackHttp2(use) {
      const before = lengths(origin);
      const client = await connectRaw(test, https, ca);
      await use(client);
      await client.settled();
      client.socket.destroy();
      return reached(origin, http, before);
    },
  };
}

/**
 * Ends the connection with a request of its own that asks for the end: it is answered only when the
 * gateway takes all before it for whole messages. Otherwise the gateway closes by itself.
 */
async function exchange(port: number, parts: readonly string[]): Promise<number[]> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  let text = '';
  const closed = new Promise<void>((resolve) => {
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    socket.on('error', () => {});
    socket.on('end', () => socket.end());
    socket.on('close', () => resolve());
  });
  for (const [index, part] of parts.entries()) {
    if (index > 0) await pass(port);
    socket.write(Buffer.from(part, 'latin1'));
  }
  await pass(port);
  socket.write(`GET /static HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n`);
  await closed;
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

/** A request on a connection of its own, after which all that was sent before has been read. */
async function pass(port: number): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}${FENCE}`);
  assert.equal(await response.text(), 'ok');
}

/** What cannot be read is answered too, so that the test goes on to say what it was. */
function isAnswerable(bytes: string): boolean {
  try {
    return readRequests(bytes).requests.length > 0;
  } catch {
    return true;
  }
}

async function reached(origin: RawOrigin, port: number, before: number[]): Promise<Reached> {
  await pass(port);
  const requests: StrictRequest[] = [];
  const unfinished: string[] = [];
  for (const [index, connection] of origin.connections.entries()) {
    const read = readRequests(connection.bytes.slice(before[index] ?? 0));
    requests.push(...read.requests.filter(({ target }) => target !== FENCE));
    if (read.rest === '') continue;
    // Nobody may ever add to it.
    await origin.until(() => connection.closed);
    unfinished.push(read.rest);
  }
  return { requests, unfinished };
}

function lengths({ connections }: RawOrigin): number[] {
  return connections.map(({ bytes, closed }) => {
    assert.ok(closed || readRequests(bytes).rest === '');
    return bytes.length;
  });
}

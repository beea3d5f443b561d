// All connections over HTTP/1.1 are read into the same memory. Each client here sends bytes that no other one
// sends, in pieces that end anywhere, and handlers read, keep, delay and drop the bodies.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import tls from 'node:tls';
import { defaultOptions } from '../../src/config/shape-options.ts';
import { answer } from '../../src/http/answer.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { HeaderList } from '../../src/http/header-list.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Http1 } from '../../src/server/protocols.ts';
import { createCertificateFiles } from '../support/certificate-files.ts';
import { portOf } from '../unit/http/exchange-server.ts';

const CLIENTS = 32;
const REQUESTS = 24;
const MAX_BODY_BYTES = 40_000;
const MAX_PIECE_BYTES = 3_000;
const EARLY_BYTES = 500;
const SEED = 7;

type Random = (below: number) => number;

/** A linear congruential generator, so that a failure can be repeated. */
function generator(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** The byte of a client: beyond ASCII, so that no head contains it. */
const byteOf = (client: number): number => 0x80 + client;

function checkBody(chunk: Buffer, client: number, what: string): void {
  const foreign = chunk.findIndex((byte) => byte !== byteOf(client));
  assert.equal(foreign, -1, `${what} of client ${client} has the byte ${chunk[foreign]}`);
}

/** What handlers do with a body, each in its turn. */
const HANDLERS: readonly ((exchange: Exchange, done: () => void, client: number) => unknown)[] = [
  (_exchange, done) => done(),
  (_exchange, done) => setImmediate(done),
  async ({ body }, done, client) => {
    const kept: Buffer[] = [];
    for await (const chunk of body) kept.push(chunk as Buffer);
    for (let turns = 0; turns < 10; turns += 1) await turn();
    checkBody(Buffer.concat(kept), client, 'a kept body');
    done();
  },
  async ({ body }, done, client) => {
    for await (const chunk of body) {
      for (let turns = 0; turns < 5; turns += 1) await turn();
      checkBody(chunk as Buffer, client, 'a body that is read slowly');
    }
    done();
  },
  ({ body }, done) => {
    body.once('data', () => void body.destroy());
    body.once('close', done);
  },
  (exchange, done, client) => {
    const leased = exchange.lendBody({ onWanted: () => {}, stall: null });
    if (leased === null) return done();
    leased.on('data', (chunk: Buffer) => checkBody(chunk, client, 'a lent body')).on('end', done);
  },
];

function handle(exchange: Exchange): unknown {
  const client = Number(/^\/(\d+)\//.exec(exchange.target)?.[1]);
  const number = Number(/^\/\d+\/(\d+)$/.exec(exchange.target)?.[1]);
  assert.equal(exchange.headers.get('x-client'), `client ${client}`.padEnd(200, `+${client}`));
  const { upgrade } = exchange;
  if (upgrade?.kind === 'http1') {
    const { socket, head } = upgrade;
    exchange.takeOver({ status: 101, source: 'gateway', headers: new HeaderList() });
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n\r\n`);
    socket.write(head);
    socket.on('data', (chunk: Buffer) => socket.write(chunk));
    socket.on('end', () => socket.end());
    return socket.resume();
  }
  const done = (): void => {
    answer(exchange, 200, { 'x-client': `${client}` }, Buffer.alloc(100, byteOf(client)));
  };
  return HANDLERS[number % HANDLERS.length]?.(exchange, done, client);
}

/** The requests of a client, and what it sends after it has changed the protocol. */
function requestsOf(client: number, random: Random): Buffer {
  const parts: Buffer[] = [];
  const head = (method: string, path: string, fields: string): void => {
    const name = `client ${client}`.padEnd(200, `+${client}`);
    const lines = `${method} /${client}/${path} HTTP/1.1\r\nHost: a\r\nX-Client: ${name}\r\n`;
    parts.push(Buffer.from(`${lines}${fields}\r\n`));
  };
  for (let n = 0; n < REQUESTS; n += 1) {
    const size = random(4) === 0 ? 0 : random(MAX_BODY_BYTES);
    if (size === 0) head('GET', `${n}`, '');
    else if (random(2) === 0) {
      head('POST', `${n}`, `Content-Length: ${size}\r\n`);
      parts.push(Buffer.alloc(size, byteOf(client)));
    } else {
      head('POST', `${n}`, 'Transfer-Encoding: chunked\r\n');
      for (let left = size; left > 0; ) {
        const chunk = Math.min(left, 1 + random(random(2) === 0 ? 10 : 9_000));
        parts.push(Buffer.from(`${chunk.toString(16)}\r\n`), Buffer.alloc(chunk, byteOf(client)));
        parts.push(Buffer.from('\r\n'));
        left -= chunk;
      }
      parts.push(Buffer.from('0\r\n\r\n'));
    }
  }
  return Buffer.concat(parts);
}

/** Sends everything in random pieces, and resolves with everything that was received. */
async function visit(socket: net.Socket, client: number, random: Random): Promise<Buffer> {
  const received: Buffer[] = [];
  const closed = once(socket, 'close');
  socket.on('data', (chunk: Buffer) => received.push(chunk));
  const send = async (bytes: Buffer): Promise<void> => {
    for (let at = 0; at < bytes.length && socket.writable; ) {
      const size = 1 + random(random(3) === 0 ? 20 : MAX_PIECE_BYTES);
      const goesOn = socket.write(bytes.subarray(at, at + size));
      at += size;
      if (!goesOn) await Promise.race([closed, once(socket, 'drain')]);
      else if (random(2) === 0) await turn();
    }
  };
  await send(requestsOf(client, random));
  while (Buffer.concat(received).toString('latin1').split('HTTP/1.1 200').length <= REQUESTS) {
    await Promise.race([closed, once(socket, 'data')]);
    if (socket.closed) break;
  }
  const name = `client ${client}`.padEnd(200, `+${client}`);
  const upgrade = `GET /${client}/0 HTTP/1.1\r\nHost: a\r\nX-Client: ${name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
  const early = Buffer.alloc(EARLY_BYTES, byteOf(client));
  await send(Buffer.concat([Buffer.from(upgrade), early]));
  await send(early);
  socket.end();
  await closed;
  return Buffer.concat(received);
}

describe('clients over HTTP/1.1', () => {
  for (const isTls of [false, true]) {
    it(`never get bytes of each other${isTls ? ', over TLS' : ''}`, async (test) => {
      const random = generator(SEED);
      const faults: unknown[] = [];
      const settings = {
        log: silentLogger,
        clientAddress: null,
        keeps: defaultOptions.servers,
        silence: null,
      };
      const http1 = new Http1(
        defaultOptions.servers,
        {
          settings: () => settings,
          take: (exchange) => {
            // It begins in the same turn.
            const handled = async (): Promise<unknown> => handle(exchange);
            handled().catch((error: unknown) => faults.push(error));
          },
        },
        systemClock,
      );
      const accept = (socket: net.Socket): void => {
        socket.on('error', () => {});
        http1.accept(socket);
      };
      const server = isTls
        ? tls.createServer(createCertificateFiles().site, accept)
        : net.createServer(accept);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      test.after(() => server.close());
      const address = { port: portOf(server), host: '127.0.0.1' };
      const visits = Array.from({ length: CLIENTS }, async (_, client) => {
        const socket = isTls
          ? tls.connect({ ...address, rejectUnauthorized: false })
          : net.connect(address);
        socket.on('error', () => {});
        await once(socket, isTls ? 'secureConnect' : 'connect');
        return visit(socket, client, random);
      });
      for (const [client, bytes] of (await Promise.all(visits)).entries()) {
        const text = bytes.toString('latin1');
        const names = [...text.matchAll(/^x-client: (\d+)/gm)].map(([, name]) => Number(name));
        assert.deepEqual(names, Array(REQUESTS).fill(client));
        checkBody(bytes.filter((byte) => byte >= 0x80) as Buffer, client, 'a response');
        const switched = text.split('101 Switching Protocols\r\n\r\n')[1] ?? '';
        assert.equal(switched.length, 2 * EARLY_BYTES);
      }
      assert.deepEqual(faults, []);
    });
  }
});

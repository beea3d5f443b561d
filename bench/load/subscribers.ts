// A process of subscribers: raw sockets that count events and do nothing else with them.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { SubscribersOrder, SubscribersReport } from './orders.ts';

/** Sockets that are being opened at the same time. */
const AT_ONCE = 64;
/** The time of its publication stands in the data of each event, and a blank after it. */
const STAMP = Buffer.from('stamp:');
const STAMP_END = ' ';

const sockets: Socket[] = [];
let expected = 0;
let received = 0;
let delays: number[] = [];
/** Events of a replay are only counted: their many delays would cost this process and the bench more than the gateway. */
let isMeasured = true;

process.on('message', (order: SubscribersOrder) => {
  switch (order.kind) {
    case 'open':
      open(order).then(
        () => report({ kind: 'opened' }),
        (error: unknown) => report({ kind: 'failed', error: String(error) }),
      );
      break;
    case 'expect':
      expected = order.events;
      isMeasured = order.isMeasured;
      // Some may have come before this order.
      settle();
      break;
    case 'close':
      for (const socket of sockets.splice(0)) socket.destroy();
      report({ kind: 'closed' });
      break;
  }
});
process.on('disconnect', () => process.exit());

async function open(order: Extract<SubscribersOrder, { kind: 'open' }>): Promise<void> {
  const ca = order.caFile === null ? null : readFileSync(order.caFile);
  let opened = 0;
  const openNext = async (): Promise<void> => {
    while (opened < order.count) {
      opened += 1;
      await openOne(order, ca);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, openNext));
}

function openOne(
  { port, request }: Extract<SubscribersOrder, { kind: 'open' }>,
  ca: Buffer | null,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket =
      ca === null
        ? connect(port, '127.0.0.1')
        : connectTls({ port, host: '127.0.0.1', servername: 'localhost', ca });
    sockets.push(socket);
    socket.write(request);
    socket.once('error', reject);
    socket.once('data', (head: Buffer) => {
      if (!head.subarray(0, 15).toString('latin1').startsWith('HTTP/1.1 200')) {
        reject(new Error(head.toString('latin1').slice(0, 500)));
        return;
      }
      const counter = new EventCounter();
      counter.count(head);
      socket.on('data', (chunk: Buffer) => counter.count(chunk));
      resolve();
    });
  });
}

/** Counts the events of one stream by the times of publication in them, wherever a read ends. */
class EventCounter {
  #rest: Buffer | null = null;

  count(chunk: Buffer): void {
    const bytes = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = null;
    let at = bytes.indexOf(STAMP);
    for (; at !== -1; at = bytes.indexOf(STAMP, at + STAMP.length)) {
      const end = bytes.indexOf(STAMP_END, at);
      if (end === -1) break;
      if (isMeasured) {
        const published = Number(bytes.toString('latin1', at + STAMP.length, end));
        delays.push(Number(process.hrtime.bigint() / 1000n) - published);
      }
      received += 1;
    }
    const cut = at === -1 ? bytes.lastIndexOf(STAMP[0] ?? 0) : at;
    // The first letter of a stamp near the end may begin one.
    if (cut !== -1 && (at !== -1 || cut > bytes.length - STAMP.length)) {
      this.#rest = Buffer.from(bytes.subarray(cut));
    }
    settle();
  }
}

function settle(): void {
  if (expected === 0 || received < expected) return;
  received -= expected;
  expected = 0;
  report({ kind: 'received', delaysUs: delays });
  delays = [];
}

function report(message: SubscribersReport): void {
  process.send?.(message);
}

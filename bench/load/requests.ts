// A process that keeps connections busy: on each the next request goes out when the answer is in.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { RequestsOrder, RequestsReport } from './orders.ts';

const HEAD_END = Buffer.from('\r\n\r\n');

process.once('message', (order: RequestsOrder) => {
  const run = new Run(order);
  void run.start().then((report) => process.send?.(report, () => process.exit()));
});
process.on('disconnect', () => process.exit());

class Run {
  readonly #order: RequestsOrder;
  readonly #ca: Buffer | null;
  readonly #request: Buffer;
  readonly #delays: number[] = [];
  #answers = 0;
  #failures = 0;
  #bytes = 0;
  #error: string | null = null;
  #over = false;

  constructor(order: RequestsOrder) {
    this.#order = order;
    this.#ca = order.caFile === null ? null : readFileSync(order.caFile);
    this.#request = Buffer.from(order.request);
  }

  async start(): Promise<RequestsReport> {
    const connections = Array.from({ length: this.#order.connections }, () => this.#connection());
    setTimeout(() => {
      this.#over = true;
    }, this.#order.durationMs);
    await Promise.all(connections);
    return {
      answers: this.#answers,
      failures: this.#failures,
      bytes: this.#bytes,
      delaysUs: this.#delays.sort((a, b) => a - b),
      error: this.#error,
    };
  }

  /** Resolves when its last answer is in. */
  #connection(): Promise<void> {
    return new Promise((resolve) => {
      const socket = this.#open();
      let began = 0n;
      let rest: Rest | null = null;
      const next = (): void => {
        if (this.#over) {
          socket.destroy();
          return;
        }
        began = process.hrtime.bigint();
        rest = null;
        socket.write(this.#request);
      };
      socket.on('data', (chunk: Buffer) => {
        this.#bytes += chunk.length;
        rest = read(rest, chunk);
        if (!rest.complete) return;
        this.#answers += 1;
        if (!rest.successful) this.#failures += 1;
        this.#delays.push(Number((process.hrtime.bigint() - began) / 1000n));
        next();
      });
      socket.on('error', (error) => {
        this.#error ??= error.message;
      });
      socket.on('close', () => {
        if (!this.#over) this.#error ??= 'a connection was closed';
        resolve();
      });
      next();
    });
  }

  #open(): Socket {
    const { port } = this.#order;
    if (this.#ca === null) return connect(port, '127.0.0.1').setNoDelay();
    return connectTls({ port, host: '127.0.0.1', servername: 'localhost', ca: this.#ca });
  }
}

/** How much of an answer has been read. */
interface Rest {
  readonly successful: boolean;
  /** Bytes of content that are missing; null where chunks tell the end. */
  readonly missing: number | null;
  readonly complete: boolean;
}

function read(rest: Rest | null, chunk: Buffer): Rest {
  if (rest !== null) {
    if (rest.missing === null) return { ...rest, complete: endsChunks(chunk) };
    const missing = rest.missing - chunk.length;
    return { ...rest, missing, complete: missing <= 0 };
  }
  const end = chunk.indexOf(HEAD_END);
  if (end === -1) return { successful: false, missing: 0, complete: true };
  const head = chunk.toString('latin1', 0, end);
  const successful = head.startsWith('HTTP/1.1 2');
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
  if (length === undefined) return { successful, missing: null, complete: endsChunks(chunk) };
  const missing = Number(length) - (chunk.length - end - HEAD_END.length);
  return { successful, missing, complete: missing <= 0 };
}

function endsChunks(chunk: Buffer): boolean {
  return chunk.subarray(-5).equals(Buffer.from('0\r\n\r\n'));
}

import { PassThrough, Readable } from 'node:stream';
import { HeaderList } from '../../../src/http/header-list.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { parseUpstream } from '../../../src/proxy/address.ts';
import { ForwardError } from '../../../src/proxy/forward-error.ts';
import type { ForwardRequest, ForwardSink } from '../../../src/proxy/forwarding.ts';
import { openConnections } from '../../../src/proxy/upstreams.ts';
import { type Overrides, proxyConfig } from './gateway.ts';

/** What a test sends; the rest is a `GET /` of a client that stays. */
interface Sent {
  readonly method?: string;
  readonly target?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Readable | string;
  readonly contentLength?: string;
  readonly trailers?: Readonly<Record<string, string>>;
  readonly client?: LeavingClient;
  readonly isRepeated?: boolean;
}

/** A client that can leave. */
export class LeavingClient {
  abandoned = false;
  readonly #listeners = new Set<() => void>();

  /** Those who want to know whether it leaves. */
  get listeners(): number {
    return this.#listeners.size;
  }

  onAbandoned(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  leave(): void {
    this.abandoned = true;
    for (const listener of this.#listeners) listener();
  }
}

/** What came of an exchange. */
export interface Received {
  readonly status: number;
  readonly fields: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
  readonly informed: readonly number[];
  /** `upstream-broken sent`, or null if the response is complete. */
  readonly failure: string | null;
}

/** The client of one upstream, without a gateway around it. */
export class Http1Client {
  readonly #connections;
  readonly #clock: Clock;

  constructor(url: string, transport: Overrides['transport'] = {}, clock: Clock = systemClock) {
    const { transport: settings } = proxyConfig([], { transport });
    this.#connections = openConnections(parseUpstream(url), settings, null);
    this.#clock = clock;
  }

  close(): void {
    this.#connections.close();
  }

  destroy(): void {
    this.#connections.destroy();
  }

  [Symbol.dispose](): void {
    this.destroy();
  }

  async ask(sent: Sent = {}, more: Partial<ForwardSink> = {}): Promise<Received> {
    const seen = { status: 0, fields: [] as string[], trailers: [] as string[] };
    const informed: number[] = [];
    let body = '';
    let ended: Promise<unknown> = Promise.resolve();
    const sink: ForwardSink = {
      onInformation: (status) => void informed.push(status),
      onHead: (status, headers) => {
        seen.status = status;
        seen.fields = headers.toRaw();
        const stream = new PassThrough();
        stream.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
        ended = new Promise((done) => stream.once('end', done));
        return stream;
      },
      onEnd: (stream, trailers) => {
        seen.trailers = trailers.toRaw();
        stream.end();
      },
      ...more,
    };
    let failure: string | null = null;
    try {
      await this.#connections.forward(this.#request(sent), sink);
      if (more.onHead === undefined) await ended;
    } catch (error) {
      failure = error instanceof ForwardError ? `${error.code} ${error.phase}` : String(error);
    }
    return { ...seen, body, informed, failure };
  }

  #request(sent: Sent): ForwardRequest {
    const { body } = sent;
    return {
      method: sent.method ?? 'GET',
      target: sent.target ?? '/',
      headers: HeaderList.of({ Host: 'a.example', ...sent.headers }),
      body: typeof body === 'string' ? Readable.from([Buffer.from(body)]) : (body ?? null),
      contentLength: sent.contentLength ?? null,
      trailers: () => HeaderList.of(sent.trailers ?? {}),
      client: sent.client ?? new LeavingClient(),
      clock: this.#clock,
      isRepeated: sent.isRepeated ?? false,
    };
  }
}

/** Writes bytes in pieces of `size`, each of which arrives alone. */
export async function writePieces(
  socket: { readonly destroyed: boolean; write(bytes: string, encoding: 'latin1'): unknown },
  text: string,
  size: number,
): Promise<void> {
  for (let at = 0; at < text.length && !socket.destroyed; at += size) {
    socket.write(text.slice(at, at + size), 'latin1');
    if (at + size < text.length) await new Promise((turn) => setImmediate(turn));
  }
}

import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';

/** Who ends what a test opens: the test, or its file by `after` of node:test. */
export interface Owner {
  readonly after: (cleanUp: () => unknown) => void;
}

export interface RawRequest {
  readonly method?: string;
  /** Fields as they go on the wire, duplicates and all. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  readonly body?: string | Buffer;
  /** The target as it goes on the wire, instead of the URL's. */
  readonly target?: string;
  /** Runs after the other side has asked for the body (100 Continue), which is sent when it is over. */
  readonly beforeBody?: () => unknown;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly rawHeaders: readonly string[];
  readonly body: string;
}

/** Sends a request whose every byte the test decides, and reads the whole answer. */
export async function send(url: string, options: RawRequest = {}): Promise<Answer> {
  const response = await open(url, options, undefined);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    rawHeaders: response.rawHeaders,
    body: Buffer.concat(chunks).toString('utf8'),
  };
}

/**
 * Asks about health. On a busy machine the gateway rightly responds that its event loop is late, so the test
 * asks again until it responds anything else.
 */
export async function askHealth(url: string, options: RawRequest = {}): Promise<Answer> {
  for (;;) {
    const answer = await send(url, options);
    if (!answer.body.includes('the event loop is late')) return answer;
  }
}

/** An event stream that is being read. */
export class Stream {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** What has arrived so far. */
  text = '';
  /** Ids of the events that have arrived. */
  readonly ids: string[] = [];
  readonly #response: IncomingMessage;
  /** The beginning of a line whose end has not arrived. */
  #line = '';
  ended = false;
  #waiting: (() => void)[] = [];

  constructor(response: IncomingMessage) {
    this.status = response.statusCode ?? 0;
    this.headers = response.headers;
    this.#response = response;
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      this.text += chunk;
      this.#readLines(chunk);
      this.#wake();
    });
    for (const event of ['end', 'close', 'error']) {
      response.on(event, () => {
        this.ended = true;
        this.#wake();
      });
    }
  }

  /** Ended by the server in good order. */
  get complete(): boolean {
    return this.#response.complete;
  }

  /** Resolves when the condition holds; rejects when the stream ends without. */
  async until(condition: (stream: Stream) => boolean): Promise<void> {
    while (!condition(this)) {
      if (this.ended) throw new Error(`The stream ended: ${this.text}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Resolves when this event has arrived, to the ids of all that came until then. */
  async untilId(id: string): Promise<string[]> {
    await this.until(({ ids }) => ids.includes(id));
    return [...this.ids];
  }

  async untilEnd(): Promise<void> {
    while (!this.ended) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  close(): void {
    this.#response.destroy();
  }

  #readLines(chunk: string): void {
    const lines = (this.#line + chunk).split('\n');
    this.#line = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('id: ')) this.ids.push(line.slice('id: '.length));
    }
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** Opens an event stream that ends with the test. */
export async function openStream(
  test: Owner,
  url: string,
  options: RawRequest = {},
): Promise<Stream> {
  const abort = new AbortController();
  const stream = new Stream(await open(url, options, abort.signal));
  test.after(() => stream.close());
  return stream;
}

/** Sends bytes as they are and reads what comes until the other side closes. */
export function sendBytes(origin: string, bytes: string | Buffer): Promise<string> {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    socket.once('error', reject);
    socket.once('close', () => resolve(text));
    socket.write(bytes);
  });
}

function open(
  url: string,
  { method = 'GET', headers = [], body, target, beforeBody }: RawRequest,
  signal: AbortSignal | undefined,
): Promise<IncomingMessage> {
  const { host, hostname, port, pathname, search } = new URL(url);
  const fields = headers.some(([name]) => name.toLowerCase() === 'host') ? [] : [['Host', host]];
  const raw = [...fields, ...headers.map(([name, value]) => [name, value])];
  if (
    body !== undefined &&
    !headers.some(([name]) => /^(content-length|transfer-encoding)$/i.test(name))
  ) {
    raw.push(['Content-Length', String(Buffer.byteLength(body))]);
  }
  if (beforeBody !== undefined) raw.push(['Expect', '100-continue']);
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        host: hostname,
        port,
        method,
        path: target ?? pathname + search,
        headers: raw.flat(),
        agent: false,
        ...(signal === undefined ? {} : { signal }),
      },
      resolve,
    );
    request.once('error', reject);
    if (beforeBody === undefined) {
      request.end(body);
      return;
    }
    request.once('continue', () => {
      Promise.resolve(beforeBody()).then(() => request.end(body), reject);
    });
    request.flushHeaders();
  });
}

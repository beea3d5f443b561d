import { connect, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { HttpError } from '../../http/errors.ts';
import { HeaderList } from '../../http/header-list.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { UpstreamAddress } from '../address.ts';
import {
  exchangeFailure,
  type ForwardSink,
  MAX_STALL_MS,
  type TransportSettings,
} from '../forward.ts';
import type { ForwardPhase } from '../forward-error.ts';
import type { RequestingClient } from '../requesting-client.ts';
import {
  beginRequest,
  encodedPairs,
  endOfStream,
  type FastcgiRecord,
  RECORD,
  RecordReader,
  streamRecords,
} from './records.ts';
import { HeadReader } from './response-head.ts';

/** Bytes of what a script complains about that go to the log, for each request. */
const MAX_STDERR_BYTES = 16 * 1024;

/** Bytes of a body without a declared length, which scripts must be told beforehand. */
const MAX_UNSIZED_BYTES = 1024 * 1024;

export interface FastcgiRequest {
  readonly method: string;
  /** Parameters of the request, but for the length of its body. */
  readonly parameters: ReadonlyMap<string, string>;
  readonly body: Readable | null;
  /** null: the body is read first, since a script reads only as much as was declared. */
  readonly contentLength: string | null;
  readonly client: RequestingClient;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface FastcgiTarget {
  readonly address: UpstreamAddress;
  readonly settings: TransportSettings;
}

/**
 * Has one request answered by a FastCGI server, over a connection of its own. Resolves when the
 * response is complete; back-pressure holds both ways.
 *
 * @throws ForwardError
 * @throws HttpError with which the body ended, 413 for one too long to be read first; whatever the sink throws
 */
export async function forwardByFastcgi(
  target: FastcgiTarget,
  request: FastcgiRequest,
  sink: ForwardSink,
): Promise<void> {
  const sized = await sizedBody(request).catch((error: Error) => {
    throw exchangeFailure(error, 'unsent', request.client.abandoned);
  });
  const parameters = new Map(request.parameters).set('CONTENT_LENGTH', sized.contentLength);
  return new Promise((resolve, reject) => {
    const exchange = new FastcgiExchange(target, request, sink, resolve, reject);
    exchange.start(encodedPairs(parameters), sized.body);
  });
}

async function sizedBody({ body, contentLength }: FastcgiRequest): Promise<{
  readonly body: Readable | Buffer | null;
  readonly contentLength: string;
}> {
  if (body === null) return { body, contentLength: '' };
  if (contentLength !== null) return { body, contentLength };
  const chunks: Buffer[] = [];
  let bytes = 0;
  // A stream without an encoding gives buffers.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_UNSIZED_BYTES) {
      throw new HttpError(413, `a body without length of more than ${MAX_UNSIZED_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return { body: Buffer.concat(chunks), contentLength: String(bytes) };
}

class FastcgiExchange {
  readonly #target: FastcgiTarget;
  readonly #request: FastcgiRequest;
  readonly #sink: ForwardSink;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  readonly #reader = new RecordReader();
  readonly #head = new HeadReader();
  #socket: Socket | undefined;
  #phase: ForwardPhase = 'unsent';
  #body: Writable | null = null;
  /** Bytes of the response's body that are still to come; null where its length is not known. */
  #left: number | null = null;
  #isBodiless = false;
  #stderr = '';
  #stopLimit: () => void = () => {};
  #stopStall: () => void = () => {};
  #forgetClient: () => void = () => {};
  #settled = false;

  constructor(
    target: FastcgiTarget,
    request: FastcgiRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.#target = target;
    this.#request = request;
    this.#sink = sink;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  start(parameters: Buffer, body: Readable | Buffer | null): void {
    const { client } = this.#request;
    if (client.abandoned) {
      this.#fail(clientLeft());
      return;
    }
    this.#forgetClient = client.onAbandoned(() => this.#fail(clientLeft()));
    const { address, settings } = this.#target;
    this.#limit(settings.dialTimeoutMs, 'no connection');
    const { socketPath, hostname, port } = address;
    const socket = connect(socketPath === null ? { host: hostname, port } : { path: socketPath });
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.once('connect', () => this.#guard(() => this.#send(socket, parameters, body)));
    socket.on('data', (chunk: Buffer) => this.#guard(() => this.#receive(chunk)));
    socket.on('error', (error) => this.#fail(error));
    socket.once('close', () => this.#fail(broken('The upstream closed the connection')));
  }

  #send(socket: Socket, parameters: Buffer, body: Readable | Buffer | null): void {
    this.#phase = 'sent';
    socket.write(
      Buffer.concat([
        beginRequest(),
        streamRecords(RECORD.params, parameters),
        endOfStream(RECORD.params),
      ]),
    );
    this.#awaitHead();
    if (body === null || Buffer.isBuffer(body)) {
      if (body !== null) socket.write(streamRecords(RECORD.stdin, body));
      socket.write(endOfStream(RECORD.stdin));
      return;
    }
    body.on('error', (error) => this.#fail(error));
    body.on('data', (chunk: Buffer) => {
      if (this.#settled || socket.write(streamRecords(RECORD.stdin, chunk))) return;
      body.pause();
      socket.once('drain', () => body.resume());
    });
    body.once('end', () => {
      if (this.#settled) return;
      socket.write(endOfStream(RECORD.stdin));
    });
  }

  #receive(chunk: Buffer): void {
    for (const record of this.#reader.read(chunk)) {
      if (this.#settled) return;
      this.#take(record);
    }
    if (this.#phase === 'responding' && this.#socket?.isPaused() === false) this.#awaitBody();
  }

  #take({ type, content }: FastcgiRecord): void {
    switch (type) {
      case RECORD.stdout:
        if (content.length > 0) this.#takeOutput(content);
        return;
      case RECORD.stderr:
        if (this.#stderr.length < MAX_STDERR_BYTES) this.#stderr += content.toString('utf8');
        return;
      case RECORD.endRequest:
        this.#end(content[4] ?? 0);
        return;
      default:
      // Of the management of servers we ask nothing.
    }
  }

  #takeOutput(content: Buffer): void {
    if (this.#phase === 'responding') {
      this.#pass(content);
      return;
    }
    const head = this.#head.read(content);
    if (head === null) return;
    const { status, headers, rest } = head;
    this.#phase = 'responding';
    this.#isBodiless = this.#request.method === 'HEAD' || status === 204 || status === 304;
    const length = headers.get('content-length');
    if (length !== undefined && !/^\d{1,15}$/.test(length)) throw broken('A length that is none');
    if (length !== undefined && !this.#isBodiless) this.#left = Number(length);
    this.#body = this.#sink.onHead(status, headers);
    if (this.#body === null) {
      this.#finish();
      return;
    }
    this.#body.on('error', (error) => this.#fail(clientLeft(error)));
    if (rest.length > 0) this.#pass(rest);
  }

  #pass(content: Buffer): void {
    const body = this.#body;
    const socket = this.#socket;
    if (body === null || socket === undefined || this.#isBodiless) return;
    if (body.destroyed) {
      this.#fail(clientLeft());
      return;
    }
    if (this.#left !== null) {
      this.#left -= content.length;
      if (this.#left < 0) throw broken('More than the declared length');
    }
    if (body.write(content)) return;
    // The silence of an upstream that is not asked is no fault of its own.
    this.#stopLimit();
    socket.pause();
    this.#stopStall();
    this.#stopStall = this.#request.clock.after(MAX_STALL_MS, () => this.#fail(clientLeft()));
    body.once('drain', () => {
      this.#stopStall();
      if (this.#settled) return;
      this.#awaitBody();
      socket.resume();
    });
  }

  #end(protocolStatus: number): void {
    if (protocolStatus !== 0) throw broken(`The upstream refused: status ${protocolStatus}`);
    if (this.#phase !== 'responding') throw broken('The script ended without a response');
    if (this.#left !== null && this.#left > 0) throw broken('Less than the declared length');
    if (this.#body !== null) this.#sink.onEnd(this.#body, new HeaderList());
    this.#finish();
  }

  #awaitHead(): void {
    this.#limit(this.#target.settings.responseHeaderTimeoutMs, 'no response');
  }

  #awaitBody(): void {
    this.#limit(this.#target.settings.readTimeoutMs, 'no more of the response');
  }

  /** Starts the one time limit that holds now; 0 for none. */
  #limit(ms: number, missing: string): void {
    this.#stopLimit();
    if (ms === 0 || this.#settled) return;
    this.#stopLimit = this.#request.clock.after(ms, () => {
      this.#fail(new HubgateError('upstream-timeout', `${missing} within ${ms} ms`));
    });
  }

  /** What a callback of ours throws ends the exchange and goes to the caller. */
  #guard(task: () => void): void {
    if (this.#settled) return;
    try {
      task();
    } catch (error) {
      if (
        error instanceof HubgateError &&
        error.code === 'upstream-broken' &&
        error.name !== 'ForwardError'
      ) {
        this.#fail(error);
        return;
      }
      this.#settle();
      this.#reject(error);
    }
  }

  #finish(): void {
    this.#settle();
    this.#resolve();
  }

  #fail(error: Error): void {
    if (this.#settled) return;
    this.#settle();
    this.#reject(exchangeFailure(error, this.#phase, this.#request.client.abandoned));
  }

  #settle(): void {
    this.#settled = true;
    this.#stopLimit();
    this.#stopStall();
    this.#forgetClient();
    this.#socket?.destroy();
    const said = this.#stderr.slice(0, MAX_STDERR_BYTES).trim();
    if (said !== '') this.#request.log.warn('the script complains', { stderr: said });
  }
}

function clientLeft(cause?: Error): Error {
  return new HubgateError('client-left', 'The exchange was broken off', { cause });
}

function broken(message: string): HubgateError {
  return new HubgateError('upstream-broken', message);
}

// No FastCGI client for Node is maintained, so this one is hubgate's own. Each request has one connection,
// and the end of the connection ends everything that belongs to the request.

import { connect, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { bufferPool } from '../../http/buffer-pool.ts';
import { HttpError } from '../../http/errors.ts';
import { MAX_DISCARDED_BYTES } from '../../http/deferred-body.ts';
import { HeaderList } from '../../http/header-list.ts';
import { MAX_PIECES_OF_TURN, restReading } from '../../http/small-pieces.ts';
import type { Logger } from '../../kernel/log.ts';
import { readWithin } from '../../kernel/parse.ts';
import { connectOptions, type UpstreamAddress } from '../address.ts';
import { broken, clientLeft, RequestLifecycle } from '../request-lifecycle.ts';
import { exchangeFailure } from '../forward-error.ts';
import type { ForwardRequest, ForwardSink, TransportSettings } from '../forwarding.ts';
import { PiecesOfRead, upstreamReads } from '../upstream-reads.ts';
import { readAfterFailedWrites } from '../upstream-writes.ts';
import {
  beginRequest,
  encodedPairs,
  endOfStream,
  HeadReader,
  RECORD,
  recordContents,
  recordHeader,
  RecordReader,
  streamRecords,
} from './records.ts';

/** Bytes of a script's error output that are logged, for each request. */
const MAX_STDERR_BYTES = 16 * 1024;

/** Largest body without a declared length, in bytes: scripts need the length in advance. */
const MAX_UNSIZED_BYTES = 1024 * 1024;

export interface FastcgiRequest
  extends Pick<ForwardRequest, 'method' | 'body' | 'client' | 'clock'> {
  /** Parameters of the request, except for the length of its body. */
  readonly parameters: ReadonlyMap<string, string>;
  /** null: the body is read first, because a script reads only as much as was declared. */
  readonly contentLength: string | null;
  readonly log: Logger;
}

export interface FastcgiTarget {
  readonly address: UpstreamAddress;
  readonly settings: TransportSettings;
}

/**
 * Exchanges one request with a FastCGI server, over a connection of its own. Resolves when the response is
 * complete; back-pressure works in both directions.
 *
 * @throws ForwardError
 * @throws HttpError with which the body ended, 413 for one that is too long to be read first; the errors of
 * the sink
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
  const bytes = await readWithin(body, MAX_UNSIZED_BYTES);
  if (bytes === null) {
    throw new HttpError(413, `a body without length of more than ${MAX_UNSIZED_BYTES} bytes`);
  }
  return { body: bytes, contentLength: String(bytes.length) };
}

class FastcgiExchange extends RequestLifecycle {
  readonly #target: FastcgiTarget;
  readonly #request: FastcgiRequest;
  readonly #sink: ForwardSink;
  readonly #reader = new RecordReader();
  readonly #head = new HeadReader();
  #socket: Socket | undefined;
  /** Bytes of the response body that are still expected; null if its length is not known. */
  #left: number | null = null;
  #isBodiless = false;
  /** Bytes of content that a response without content has. */
  #discarded = 0;
  /** What the script has written to its error output, as far as it is logged. */
  #stderr: Buffer | null = null;
  #stderrBytes = 0;

  constructor(
    target: FastcgiTarget,
    request: FastcgiRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    super(request, target.settings, resolve, reject);
    this.#target = target;
    this.#request = request;
    this.#sink = sink;
  }

  start(parameters: Buffer, body: Readable | Buffer | null): void {
    this.watchClient();
    this.guard(() => this.#dial(parameters, body));
  }

  #dial(parameters: Buffer, body: Readable | Buffer | null): void {
    const { address, settings } = this.#target;
    this.limit(settings.dialTimeoutMs, 'no connection');
    const socket = connect({
      ...connectOptions(address, settings),
      ...upstreamReads.socketOptions,
    });
    this.#socket = socket;
    let writeError: Error | null = null;
    readAfterFailedWrites(socket, (error) => {
      writeError ??= error;
    });
    const closed = (): void =>
      this.failed(writeError ?? broken('The upstream closed the connection'));
    socket.setNoDelay(true);
    socket.once('connect', () => this.guard(() => this.#send(socket, parameters, body)));
    socket.on('data', (chunk: Buffer) => this.guard(() => this.#receive(chunk)));
    socket.on('error', (error) => this.failed(error));
    socket.once('end', closed).once('close', closed);
  }

  #send(socket: Socket, parameters: Buffer, body: Readable | Buffer | null): void {
    this.phase = 'sent';
    socket.write(
      Buffer.concat([
        beginRequest(),
        streamRecords(RECORD.params, parameters),
        endOfStream(RECORD.params),
      ]),
    );
    if (body === null || Buffer.isBuffer(body)) {
      if (body !== null) socket.write(streamRecords(RECORD.stdin, body));
      socket.write(endOfStream(RECORD.stdin));
      this.awaitHead();
      return;
    }
    // The limit for the connection is over, and the one for the head begins when the client has sent everything.
    this.endLimit();
    this.send(
      body,
      socket,
      (chunk, flow) => {
        // One write, without a copy.
        socket.cork();
        for (const part of recordContents(chunk)) {
          socket.write(recordHeader(RECORD.stdin, part.length));
          flow.write(part);
        }
        bufferPool.passedOn(chunk);
        socket.uncork();
      },
      () => socket.write(endOfStream(RECORD.stdin)),
    );
  }

  #receive(chunk: Buffer): void {
    const output = new PiecesOfRead(chunk, (content) => {
      if (!this.isSettled) this.#takeOutput(content);
    });
    for (const { type, content } of this.#reader.read(chunk)) {
      if (this.isSettled) return;
      if (type === RECORD.stdout) output.add(content);
      else if (type === RECORD.stderr) this.#takeErrors(content);
      else if (type === RECORD.endRequest) {
        output.flush();
        if (!this.isSettled) this.#end(content[4] ?? 0);
      }
      // Management records are not requested.
    }
    output.flush();
    bufferPool.passedOn(chunk);
    if (this.#reader.recordsOfRead >= MAX_PIECES_OF_TURN && this.#socket) restReading(this.#socket);
    if (this.phase === 'responding' && this.#socket?.isPaused() === false) this.awaitBody();
  }

  #takeErrors(content: Buffer): void {
    if (this.#stderrBytes >= MAX_STDERR_BYTES) return;
    this.#stderr ??= Buffer.allocUnsafe(MAX_STDERR_BYTES);
    this.#stderrBytes += content.copy(this.#stderr, this.#stderrBytes);
  }

  #takeOutput(content: Buffer): void {
    if (this.phase === 'responding') return this.#pass(content);
    const head = this.#head.read(content);
    if (head === null) return;
    const { status, headers, rest } = head;
    this.beginResponse();
    this.#isBodiless = this.#request.method === 'HEAD' || status === 204 || status === 304;
    // Two clients could find different ends of a response with two lengths (RFC 9112 §6.3).
    const length = headers.combined('content-length');
    if (length !== undefined && !/^\d{1,15}$/.test(length)) throw broken('An invalid length');
    if (length !== undefined && !this.#isBodiless) this.#left = Number(length);
    const isWhole = this.#request.method === 'HEAD';
    this.body = this.#sink.onHead(status, headers, '1.1', isWhole);
    if (this.body === null) return this.finish();
    this.body.on('error', (error) => this.failed(clientLeft(error)));
    if (rest.length > 0) this.#pass(rest);
  }

  #pass(content: Buffer): void {
    const body = this.body;
    const socket = this.#socket;
    if (body === null || socket === undefined) return;
    if (this.#isBodiless) {
      this.#discarded += content.length;
      if (this.#discarded <= MAX_DISCARDED_BYTES) return;
      // A script that streams need not be read to its end.
      this.#sink.onEnd(body, new HeaderList());
      this.finish();
      return;
    }
    if (this.#left !== null) {
      this.#left -= content.length;
      if (this.#left < 0) throw broken('More bytes than declared');
    }
    this.pass(content, body);
  }

  #end(protocolStatus: number): void {
    if (protocolStatus !== 0) throw broken(`The upstream refused: status ${protocolStatus}`);
    if (this.phase !== 'responding') throw broken('The script ended without a response');
    if (this.#left !== null && this.#left > 0) throw broken('Fewer bytes than declared');
    if (this.body !== null) this.#sink.onEnd(this.body, new HeaderList());
    this.finish();
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  protected release(): void {
    this.#socket?.destroy();
    const said = this.#stderr?.toString('utf8', 0, this.#stderrBytes).trim() ?? '';
    if (said !== '') this.#request.log.warn('The script has reported an error', { stderr: said });
  }
}

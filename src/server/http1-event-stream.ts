// An event stream over HTTP/1.1 has its connection to itself. Once its head is written, the connection is left to
// it, and it writes to the socket directly. So one framed Buffer goes to every socket unchanged. If a stream comes
// after an earlier response, uses HTTP/1.0, or is encoded or delayed, it is an ordinary body instead.

import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { ResponseStream, StreamListener } from '../http/exchange.ts';
import { LAST_CHUNK } from '../http/http1-syntax.ts';
import type { Http1Writer } from '../http/http1-writer.ts';

/** Bytes that are copied behind the head, so that they leave in one write. */
const MAX_JOINED_BYTES = 16 * 1024;

/**
 * The stream that a connection or an HTTP/2 stream carries. Shared functions find it here, so a stream needs no
 * functions of its own.
 */
const STREAM = Symbol('stream on this carrier');

type Carrying = Writable & { [STREAM]?: CarriedStream<Writable> };

/** An event stream that is written to what carries it directly. */
export abstract class CarriedStream<Carrier extends Writable> implements ResponseStream {
  abstract readonly framing: ResponseStream['framing'];
  protected readonly carrier: Carrier;
  protected isOver = false;
  #listener: StreamListener | null = null;
  #isClosed: boolean;

  /** The head has already been sent, or the carrier is closed and reports it no more. */
  constructor(carrier: Carrier & Carrying, isClosed: boolean) {
    this.carrier = carrier;
    this.#isClosed = isClosed;
    carrier[STREAM] = this;
    carrier.on('drain', onDrain).on('close', onClose);
  }

  abstract write(framed: Buffer): boolean;
  abstract destroy(): void;
  /** Ends the carrier after what was written. */
  protected abstract endCarrier(): void;
  /** The carrier was closed before the end. */
  protected left(): void {}

  get bufferedBytes(): number {
    return this.#isClosed ? 0 : this.carrier.writableLength;
  }

  listen(listener: StreamListener): void {
    this.#listener = listener;
    if (this.#isClosed) queueMicrotask(() => listener.closed());
  }

  end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.endCarrier();
  }

  drained(): void {
    if (!this.isOver) this.#listener?.drained();
  }

  closed(): void {
    if (this.#isClosed) return;
    if (!this.isOver) this.left();
    this.isOver = true;
    this.#isClosed = true;
    this.#listener?.closed();
  }
}

function onDrain(this: Carrying): void {
  this[STREAM]?.drained();
}

function onClose(this: Carrying): void {
  this[STREAM]?.closed();
}

/**
 * The chunked body of the last response of an HTTP/1.1 connection (RFC 9112 §7.1). It has the connection to
 * itself: nothing else reads from it or writes to it.
 */
export class Http1EventStream extends CarriedStream<Socket> {
  readonly framing = 'chunked';
  /** It leaves together with the first events at the end of the turn; null once it has left. */
  #head: Http1Writer | null;
  readonly #onLeave: (() => void) | null;

  /** `onLeave` is called when the connection closes before the end. */
  constructor(socket: Socket, head: Http1Writer | null, onLeave: (() => void) | null) {
    super(socket, false);
    this.#head = head;
    this.#onLeave = onLeave;
    if (head !== null) process.nextTick(sendHead, this);
  }

  write(framed: Buffer): boolean {
    if (this.isOver) return true;
    const head = this.#head;
    if (head !== null && head.length + framed.length <= MAX_JOINED_BYTES) {
      head.bytes(framed);
      return true;
    }
    this.sendHead();
    return this.carrier.write(framed);
  }

  sendHead(): void {
    const head = this.#head;
    this.#head = null;
    if (this.carrier.destroyed) head?.discard();
    else head?.sendTo(this.carrier);
  }

  destroy(): void {
    this.isOver = true;
    this.carrier.destroy();
  }

  protected endCarrier(): void {
    this.sendHead();
    this.carrier.write(LAST_CHUNK, 'latin1');
    this.carrier.destroySoon();
  }

  protected override left(): void {
    this.#onLeave?.();
  }
}

function sendHead(stream: Http1EventStream): void {
  stream.sendHead();
}

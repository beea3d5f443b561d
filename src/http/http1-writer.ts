// HTTP/1.1 messages are put together as bytes, in memory that is used again for the next ones. Put together as
// text, a message would exist in V8's heap three times: its parts, the parts joined, and a short body as text.

import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { RecentObjects } from '../kernel/v8-memory.ts';
import { isTokenByte, isValueByte } from './http1-syntax.ts';

/** Bytes of memory that is used again. A longer message gets memory of its own. */
const SHARED_BYTES = 20 * 1024;
/** Pieces of memory that are kept for the next messages. */
const MAX_SPARE = 16;
const spare: Buffer[] = [];

const [CR, LF, SPACE, COLON] = [13, 10, 32, 58];

const recent = new RecentObjects();

type Done = (error?: Error | null) => void;

/** One message, or a part of it, on its way to a socket. Its texts have one character per byte. */
export class Http1Writer {
  #memory = spare.pop() ?? Buffer.allocUnsafeSlow(SHARED_BYTES);
  /** Number of bytes that have been added. */
  #length = 0;

  constructor() {
    recent.keep(this);
  }

  get length(): number {
    return this.#length;
  }

  text(text: string): void {
    const memory = this.#reserve(text.length);
    let end = this.#length;
    for (let at = 0; at < text.length; at += 1) memory[end++] = text.charCodeAt(at);
    this.#length = end;
  }

  /** Adds a field line (RFC 9112 §5). Returns false, and adds nothing, if the name or the value cannot be sent. */
  field(name: string, value: string): boolean {
    const memory = this.#reserve(name.length + value.length + 4);
    let end = this.#length;
    for (let at = 0; at < name.length; at += 1) {
      const byte = name.charCodeAt(at);
      if (!isTokenByte(byte)) return false;
      memory[end++] = byte;
    }
    if (name === '') return false;
    memory[end++] = COLON;
    memory[end++] = SPACE;
    for (let at = 0; at < value.length; at += 1) {
      const byte = value.charCodeAt(at);
      if (!isValueByte(byte)) return false;
      memory[end++] = byte;
    }
    memory[end++] = CR;
    memory[end++] = LF;
    this.#length = end;
    return true;
  }

  bytes(piece: Buffer): void {
    const memory = this.#reserve(piece.length);
    this.#length += piece.copy(memory, this.#length);
  }

  /**
   * Moves the message to memory of its own size, because it may have to wait for long.
   *
   * @param room bytes that will still be added
   */
  keep(room = 0): void {
    const memory = this.#memory;
    if (memory.length !== SHARED_BYTES) return;
    this.#memory = Buffer.allocUnsafe(this.#length + room);
    memory.copy(this.#memory, 0, 0, this.#length);
    release(memory);
  }

  /** The message is not sent. */
  discard(): void {
    release(this.#memory);
    this.#memory = NOTHING;
    this.#length = 0;
  }

  /**
   * Writes the message, to which nothing can be added any more.
   *
   * @returns whether the socket accepts more at the moment
   */
  sendTo(socket: Socket, done?: Done): boolean {
    const memory = this.#memory;
    // Behind other writes, it waits until they have been sent.
    const waits = socket.writableLength > 0 || socket.writableCorked > 0 || socket.connecting;
    if (waits) this.keep();
    const own = this.#memory;
    const bytes = own.length === this.#length ? own : own.subarray(0, this.#length);
    const accepts = socket.write(bytes, done);
    // TLS has encrypted it at once. Without TLS, the system has taken all of it if nothing is left.
    if (!waits && (socket instanceof TLSSocket || socket.writableLength === 0)) release(memory);
    this.#memory = NOTHING;
    this.#length = 0;
    return accepts;
  }

  /** Returns memory with room for more bytes at its end. */
  #reserve(bytes: number): Buffer {
    const memory = this.#memory;
    const needed = this.#length + bytes;
    if (needed <= memory.length) return memory;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * memory.length));
    memory.copy(larger, 0, 0, this.#length);
    release(memory);
    this.#memory = larger;
    return larger;
  }
}

const NOTHING = Buffer.alloc(0);

function release(memory: Buffer): void {
  if (memory.length === SHARED_BYTES && spare.length < MAX_SPARE) spare.push(memory);
}

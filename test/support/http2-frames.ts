import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Owner } from './http.ts';

/** Frame types of RFC 9113 §6. */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

export const FLAG = { endStream: 0x1, ack: 0x1, endHeaders: 0x4 } as const;

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** A field as it goes on the wire: byte strings, whatever their characters. */
export type Field = readonly [name: string, value: string];

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const FRAME_HEAD = 9;
const SETTINGS_HEADER_TABLE_SIZE = 1;

/** One frame, whether or not the protocol allows it. */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer | string = '',
): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload, 'latin1') : payload;
  const head = Buffer.alloc(FRAME_HEAD);
  head.writeUIntBE(body.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, body]);
}

/** A HEADERS frame whose block fits into it, of fields that are encoded literally. */
export function headers(
  stream: number,
  fields: readonly Field[],
  flags: number = FLAG.endHeaders | FLAG.endStream,
): Buffer {
  return frame(FRAME.headers, flags, stream, block(fields));
}

/** A header block of literal fields without indexing and without Huffman coding (RFC 7541 §6.2.2). */
export function block(fields: readonly Field[]): Buffer {
  return Buffer.concat(
    fields.flatMap(([name, value]) => [Buffer.from([0]), literal(name), literal(value)]),
  );
}

/** RFC 7541 §5.2. */
export function literal(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  return Buffer.concat([integer(bytes.length, 7), bytes]);
}

/** RFC 7541 §5.1, the bits before the prefix being zero. */
function integer(value: number, prefix: number): Buffer {
  const limit = 2 ** prefix - 1;
  if (value < limit) return Buffer.from([value]);
  const bytes = [limit];
  let rest = value - limit;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  bytes.push(rest);
  return Buffer.from(bytes);
}

/** An HTTP/2 client that writes the frames it is given and keeps those that come. */
export class RawHttp2 {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  closed = false;
  #unread: Buffer = Buffer.alloc(0);
  #waiting: (() => void)[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    // A connection that is reset has ended, which is all that a test asks.
    socket.on('error', () => {});
    socket.once('close', () => {
      this.closed = true;
      this.#wake();
    });
  }

  send(...frames: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** Resolves with the first frame for which `condition` holds; rejects when the connection ends before. */
  async until(condition: (frame: Frame) => boolean): Promise<Frame> {
    for (;;) {
      const found = this.frames.find(condition);
      if (found !== undefined) return found;
      if (this.closed) throw new Error(`The connection ended after ${this.#summary()}`);
      await this.#change();
    }
  }

  /**
   * What becomes of a stream: its status, or how it is refused. The frames that came in one go are
   * looked at in their order, so a response that is reset afterwards counts as a response.
   */
  async outcome(stream: number): Promise<number | 'reset' | 'goaway' | 'closed'> {
    for (;;) {
      for (const one of this.frames) {
        if (one.type === FRAME.goAway && errorCode(one) !== 0) return 'goaway';
        if (one.stream !== stream) continue;
        if (one.type === FRAME.headers) return statusOf(one);
        if (one.type === FRAME.reset) return 'reset';
      }
      if (this.closed) return 'closed';
      await this.#change();
    }
  }

  async untilClosed(): Promise<void> {
    while (!this.closed) await this.#change();
  }

  /** Resolves when the connection is cut, or given up with an error: then nothing more is looked at. */
  async untilEnded(): Promise<void> {
    const isEnd = (one: Frame): boolean => one.type === FRAME.goAway && errorCode(one) !== 0;
    while (!this.closed && !this.frames.some(isEnd)) await this.#change();
  }

  /** Resolves when the server has worked through all that has been sent, refusals included. */
  async settled(): Promise<void> {
    const payload = Buffer.from(`ping${String(this.frames.length).padStart(4, '0')}`);
    this.send(frame(FRAME.ping, 0, 0, payload));
    while (!this.closed && !this.frames.some((one) => isAnswer(one, payload))) await this.#change();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk]);
    while (this.#unread.length >= FRAME_HEAD) {
      const end = FRAME_HEAD + this.#unread.readUIntBE(0, 3);
      if (this.#unread.length < end) break;
      this.frames.push({
        type: this.#unread.readUInt8(3),
        flags: this.#unread.readUInt8(4),
        stream: this.#unread.readUInt32BE(5),
        payload: this.#unread.subarray(FRAME_HEAD, end),
      });
      this.#unread = this.#unread.subarray(end);
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  #summary(): string {
    return JSON.stringify(
      this.frames.slice(-5).map(({ type, flags, stream }) => ({ type, flags, stream })),
    );
  }
}

/** Connects over TLS, agrees on HTTP/2, and has exchanged the settings. */
export async function connectRaw(test: Owner, port: number, ca: string): Promise<RawHttp2> {
  const client = await new Promise<RawHttp2>((resolve, reject) => {
    const socket = connectTls({
      host: '127.0.0.1',
      port,
      servername: 'localhost',
      ca,
      ALPNProtocols: ['h2'],
    });
    test.after(() => socket.destroy());
    socket.once('error', reject);
    socket.once('secureConnect', () => resolve(new RawHttp2(socket)));
  });
  // Without a dynamic table a status can be read from its own frame.
  const settings = Buffer.alloc(6);
  settings.writeUInt16BE(SETTINGS_HEADER_TABLE_SIZE, 0);
  client.send(Buffer.from(PREFACE, 'latin1'), frame(FRAME.settings, 0, 0, settings));
  await client.until(({ type, flags }) => type === FRAME.settings && flags === 0);
  client.send(frame(FRAME.settings, FLAG.ack, 0));
  await client.until(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack);
  return client;
}

/** The error code of RST_STREAM or GOAWAY. */
export function errorCode({ type, payload }: Frame): number {
  return payload.readUInt32BE(type === FRAME.goAway ? 4 : 0);
}

function isAnswer({ type, flags, payload }: Frame, sent: Buffer): boolean {
  return type === FRAME.ping && flags === FLAG.ack && payload.equals(sent);
}

/** Statuses of the static table (RFC 7541 appendix A), by index. */
const INDEXED: Readonly<Record<number, number>> = {
  8: 200,
  9: 204,
  10: 206,
  11: 304,
  12: 400,
  13: 404,
  14: 500,
};

/** `:status` is the first field of a response. */
function statusOf({ payload }: Frame): number {
  let at = 0;
  // A change of the table's size may stand before the fields.
  while (at < payload.length && (payload.readUInt8(at) & 0xe0) === 0x20) at += 1;
  const first = payload.readUInt8(at);
  if (first >= 0x80) return INDEXED[first - 0x80] ?? 0;
  const length = payload.readUInt8(at + 1);
  const text = payload.subarray(at + 2, at + 2 + (length & 0x7f));
  return Number(length >= 0x80 ? digits(text) : text.toString('latin1'));
}

/** Huffman-coded digits (RFC 7541 appendix B): 0, 1 and 2 have five bits, the others six. */
function digits(coded: Buffer): string {
  let bits = [...coded].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  let text = '';
  while (text.length < 3 && bits.length >= 5) {
    const short = Number.parseInt(bits.slice(0, 5), 2);
    const width = short <= 2 ? 5 : 6;
    text += short <= 2 ? short : Number.parseInt(bits.slice(0, 6), 2) - 0b011001 + 3;
    bits = bits.slice(width);
  }
  return text;
}

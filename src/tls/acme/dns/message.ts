// DNS messages are encoded and decoded here. `dns-packet` does not fit: it cannot write the class NONE, with
// which an update removes a record (RFC 2136 §2.5.4), and it does not report where the signature of a
// response begins (RFC 8945 §5.3).

/** Types and classes of records (RFC 1035 §3.2, RFC 2136 §2.4, RFC 8945 §4.2). */
export const TYPE = { SOA: 6, TXT: 16, TSIG: 250 } as const;
export const CLASS = { IN: 1, NONE: 254, ANY: 255 } as const;
/** Header fields (RFC 1035 §4.1.1, RFC 2136 §2.2). */
const OPCODE = { query: 0, update: 5 } as const;
const RESPONSE_BIT = 0x8000;
const HEADER_BYTES = 12;
/** Bytes of a name and of its labels (RFC 1035 §2.3.4). */
const MAX_NAME = 255;
const MAX_LABEL = 63;
/** Most records of a response that are read; responses to the questions of this module have few. */
const MAX_RECORDS = 256;

export interface DnsRecord {
  /** Lower case, without a trailing dot. */
  readonly name: string;
  readonly type: number;
  readonly class: number;
  readonly ttl: number;
  readonly data: Buffer;
}

/** A request: one question, or an update of a zone with at most one changed record. */
export interface DnsRequest {
  readonly id: number;
  readonly kind: keyof typeof OPCODE;
  /** Name in the question, or name of the zone. */
  readonly name: string;
  readonly update: DnsRecord | null;
}

export interface DnsResponse {
  readonly id: number;
  readonly code: number;
  readonly answers: readonly DnsRecord[];
  readonly authorities: readonly DnsRecord[];
  /** The last record if it is a TSIG, and the offset at which it begins. */
  readonly signature: { readonly record: DnsRecord; readonly start: number } | null;
}

/** Encodes a question for the SOA of a name, or an update of a zone, without a signature. */
export function encodeRequest({ id, kind, name, update }: DnsRequest): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(id, 0);
  header.writeUInt16BE(OPCODE[kind] << 11, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(update === null ? 0 : 1, 8);
  const question = Buffer.concat([encodeName(name), uint16(TYPE.SOA), uint16(CLASS.IN)]);
  return Buffer.concat([header, question, ...(update === null ? [] : [encodeRecord(update)])]);
}

export function encodeRecord({ name, type, class: group, ttl, data }: DnsRecord): Buffer {
  const fixed = [uint16(type), uint16(group), uint32(ttl), uint16(data.length)];
  return Buffer.concat([encodeName(name), ...fixed, data]);
}

/**
 * Encodes a name in lower case and without compression, as signatures require (RFC 8945 §4.3.3).
 *
 * @throws RangeError if it is not a valid name
 */
export function encodeName(name: string): Buffer {
  const labels = name.toLowerCase().replace(/\.$/, '').split('.');
  const parts = labels.map((label) => {
    const bytes = Buffer.from(label, 'latin1');
    if (bytes.length === 0 || bytes.length > MAX_LABEL) throw new RangeError(`no name: ${name}`);
    return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  });
  const wire = Buffer.concat([...parts, Buffer.from([0])]);
  if (wire.length > MAX_NAME) throw new RangeError(`too long a name: ${name.slice(0, 80)}`);
  return wire;
}

/** The data of a TXT record with one string of at most 255 bytes. */
export function textData(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  if (bytes.length > 255) throw new RangeError('too long a text for one string of a TXT record');
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

export function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** @throws RangeError if it is not a response, or if it points beyond its end */
export function decodeResponse(message: Buffer): DnsResponse {
  const flags = message.readUInt16BE(2);
  if ((flags & RESPONSE_BIT) === 0) throw new RangeError('no response');
  const reader = new MessageReader(message);
  const [questions = 0, answers = 0, authorities = 0, additional = 0] = [4, 6, 8, 10].map((at) =>
    message.readUInt16BE(at),
  );
  if (questions + answers + authorities + additional > MAX_RECORDS) {
    throw new RangeError('too many records');
  }
  for (let i = 0; i < questions; i += 1) reader.skipQuestion();
  const read = (count: number): DnsRecord[] => Array.from({ length: count }, () => reader.record());
  const sections = { answers: read(answers), authorities: read(authorities) };
  if (additional > 0) read(additional - 1);
  const start = reader.at;
  const last = additional > 0 ? reader.record() : null;
  if (reader.at !== message.length) throw new RangeError('more than its records');
  return {
    id: message.readUInt16BE(0),
    code: flags & 0xf,
    ...sections,
    signature: last?.type === TYPE.TSIG ? { record: last, start } : null,
  };
}

/** Reads names and records. A read beyond the end is a RangeError of the Buffer. */
export class MessageReader {
  at = HEADER_BYTES;
  readonly #message: Buffer;

  constructor(message: Buffer, at = HEADER_BYTES) {
    this.#message = message;
    this.at = at;
  }

  skipQuestion(): void {
    this.name();
    this.bytes(4);
  }

  record(): DnsRecord {
    const name = this.name();
    const type = this.uint16();
    const group = this.uint16();
    const ttl = this.bytes(4).readUInt32BE();
    return { name, type, class: group, ttl, data: this.bytes(this.uint16()) };
  }

  uint16(): number {
    return this.bytes(2).readUInt16BE();
  }

  bytes(length: number): Buffer {
    if (this.at + length > this.#message.length) throw new RangeError('it is incomplete');
    this.at += length;
    return this.#message.subarray(this.at - length, this.at);
  }

  /** A pointer only leads to an earlier offset, so pointers cannot form a circle (RFC 1035 §4.1.4). */
  name(): string {
    const labels: string[] = [];
    let total = 1;
    let at = this.at;
    let end: number | null = null;
    for (;;) {
      const length = this.#message.readUInt8(at);
      if (length === 0) break;
      if (length >= 0xc0) {
        const target = this.#message.readUInt16BE(at) & 0x3fff;
        if (target >= at) throw new RangeError('a name that points forward');
        end ??= at + 2;
        at = target;
        continue;
      }
      total += length + 1;
      if (length > MAX_LABEL || total > MAX_NAME) throw new RangeError('too long a name');
      if (at + 1 + length > this.#message.length) throw new RangeError('it is incomplete');
      labels.push(this.#message.toString('latin1', at + 1, at + 1 + length).toLowerCase());
      at += length + 1;
    }
    this.at = end ?? at + 1;
    return labels.join('.');
  }
}

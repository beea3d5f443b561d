import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { HubgateError, messageOf } from '../kernel/error.ts';

const MAGIC = 0xed0cdaed;
const VERSION = 2;
const HEADER_BYTES = 16;
/** In pages of both kinds. */
const ELEMENT_BYTES = 16;
const META_BYTES = 56;
const BRANCH = 0x01;
const LEAF = 0x02;
/** Flag of an element whose value is a bucket. */
const BUCKET = 0x01;
/** Largest page, including its overflow; an update is far smaller. */
const MAX_PAGE_BYTES = 1024 * 1024 * 1024;

interface Meta {
  readonly pageSize: number;
  readonly root: number;
  readonly transaction: bigint;
}

interface Element {
  readonly flags: number;
  readonly key: Buffer;
  readonly value: Buffer;
}

/**
 * Reads the values of one bucket of a bolt file (bbolt, format 2), in the order of their keys. A hub that
 * stored its history there has left such a file. No process may write to it in the meantime.
 *
 * @throws HubgateError `invalid-argument` if it is not a bolt file, is damaged, or has no such bucket
 */
export function* readBoltFile(path: string, bucket: string): Generator<Buffer> {
  const file = openSync(path, 'r');
  try {
    const pages = new Pages(file, readMeta(file));
    for (const { flags, key, value } of pages.elements(pages.root)) {
      if ((flags & BUCKET) === 0 || key.toString() !== bucket) continue;
      const root = numberAt(value, 0);
      // A small bucket is stored in the value itself, after its header.
      const page = root === 0 ? value.subarray(HEADER_BYTES) : pages.read(root);
      for (const element of pages.elements(page)) yield element.value;
      return;
    }
    throw damaged(`it has no bucket "${bucket}"`);
  } catch (error) {
    throw error instanceof RangeError ? damaged(messageOf(error)) : error;
  } finally {
    closeSync(file);
  }
}

class Pages {
  readonly #file: number;
  readonly #size: number;
  readonly #meta: Meta;
  /** Pages that may still be read: a tree contains each page only once. */
  #left: number;

  constructor(file: number, meta: Meta) {
    this.#file = file;
    this.#size = fstatSync(file).size;
    this.#meta = meta;
    this.#left = this.#size / meta.pageSize;
  }

  get root(): Buffer {
    return this.read(this.#meta.root);
  }

  read(number: number): Buffer {
    this.#left -= 1;
    if (this.#left < 0) throw damaged('its pages form a loop');
    const { pageSize } = this.#meta;
    const at = number * pageSize;
    const overflow = readAt(this.#file, at, HEADER_BYTES).readUInt32LE(12);
    const bytes = (overflow + 1) * pageSize;
    if (bytes > MAX_PAGE_BYTES || at + bytes > this.#size)
      throw damaged(`page ${number} is incomplete`);
    return readAt(this.#file, at, bytes);
  }

  /** The elements in the leaves below a page, in order. */
  *elements(page: Buffer): Generator<Element> {
    const kind = page.readUInt16LE(8);
    const count = page.readUInt16LE(10);
    for (let i = 0; i < count; i += 1) {
      const at = HEADER_BYTES + i * ELEMENT_BYTES;
      if (kind === BRANCH) yield* this.elements(this.read(numberAt(page, at + 8)));
      else if (kind === LEAF) yield leafElement(page, at);
      else throw damaged(`a page is of the unknown kind ${kind}`);
    }
  }
}

function leafElement(page: Buffer, at: number): Element {
  const start = at + page.readUInt32LE(at + 4);
  const middle = start + page.readUInt32LE(at + 8);
  const end = middle + page.readUInt32LE(at + 12);
  if (end > page.length) throw damaged('an element is incomplete');
  return {
    flags: page.readUInt32LE(at),
    key: page.subarray(start, middle),
    value: page.subarray(middle, end),
  };
}

/** The newer of the two that is intact. The other one is being written, or was when the power failed. */
function readMeta(file: number): Meta {
  const first = metaAt(file, 0);
  const sizes = first === null ? [4096, 8192, 16_384, 32_768, 65_536] : [first.pageSize];
  const metas = [first, ...sizes.map((size) => metaAt(file, size))].filter((meta) => meta !== null);
  const [newest] = metas.toSorted((a, b) => Number(b.transaction - a.transaction));
  if (newest === undefined) throw damaged('it is not a bolt file');
  return newest;
}

function metaAt(file: number, at: number): Meta | null {
  if (fstatSync(file).size < at + HEADER_BYTES + META_BYTES + 8) return null;
  const meta = readAt(file, at + HEADER_BYTES, META_BYTES + 8);
  if (meta.readUInt32LE(0) !== MAGIC || meta.readUInt32LE(4) !== VERSION) return null;
  if (meta.readBigUInt64LE(META_BYTES) !== fnv1a(meta.subarray(0, META_BYTES))) return null;
  return {
    pageSize: meta.readUInt32LE(8),
    root: numberAt(meta, 16),
    transaction: meta.readBigUInt64LE(48),
  };
}

function fnv1a(bytes: Buffer): bigint {
  let sum = 0xcbf29ce484222325n;
  for (const byte of bytes) sum = BigInt.asUintN(64, (sum ^ BigInt(byte)) * 0x100000001b3n);
  return sum;
}

function numberAt(bytes: Buffer, at: number): number {
  return Number(bytes.readBigUInt64LE(at));
}

function readAt(file: number, at: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  if (readSync(file, bytes, 0, length, at) !== length) throw damaged('it is incomplete');
  return bytes;
}

function damaged(why: string): HubgateError {
  return new HubgateError('invalid-argument', `The bolt file cannot be read: ${why}`);
}

// Field values are byte strings, because Node reads and writes headers as latin1. `utf8Field` and `fieldUtf8`
// convert them at the few places where text is written or read.

/** Places of one field in the list: its lower-case name, its name as spelled, its value. */
const STRIDE = 3;
const NAME = 1;
const VALUE = 2;
/** Fields that a handler may add to a list that it clones, without its memory being allocated again. */
const ADDED_TO_CLONE = 8;

/**
 * The fields of one message in order. Names are compared without case, and keep their spelling. Values are
 * byte strings: one character per byte of the wire, as Node reads and writes them. Use {@link utf8Field} to
 * put text into a field and {@link fieldUtf8} to read text from one.
 */
export class HeaderList implements Iterable<readonly [name: string, value: string]> {
  /** One list for all parts of all fields: a request has several such lists, and each array costs memory. */
  #parts: string[];
  /** The end of the fields in it. What follows is spare. */
  #end = 0;

  /** `expected` is the number of fields for which memory is allocated at once. */
  constructor(expected = 0) {
    this.#parts = expected === 0 ? [] : new Array<string>(expected * STRIDE);
  }

  /**
   * Creates a list from the alternating names and values of Node's `rawHeaders`, or from those of the HTTP
   * client, which are bytes.
   */
  static fromRaw(raw: readonly (string | Buffer)[]): HeaderList {
    const list = new HeaderList(raw.length >> 1);
    for (let i = 0; i + 1 < raw.length; i += 2) list.append(textOf(raw[i]), textOf(raw[i + 1]));
    return list;
  }

  static of(fields: Readonly<Record<string, string | readonly string[]>>): HeaderList {
    const list = new HeaderList();
    for (const [name, value] of Object.entries(fields)) {
      if (typeof value === 'string') list.append(name, value);
      else for (const one of value) list.append(name, one);
    }
    return list;
  }

  /** The value of the first field with that name. */
  get(name: string): string | undefined {
    const at = this.#find(name.toLowerCase(), 0);
    return at === -1 ? undefined : this.#parts[at + VALUE];
  }

  /** The values of all fields with that name, in order. */
  getAll(name: string): string[] {
    const key = name.toLowerCase();
    const values: string[] = [];
    for (let at = this.#find(key, 0); at !== -1; at = this.#find(key, at + STRIDE)) {
      values.push(this.#part(at + VALUE));
    }
    return values;
  }

  /** All values with that name as one list (RFC 9110 §5.3). Not for `Set-Cookie`. */
  combined(name: string): string | undefined {
    const key = name.toLowerCase();
    let at = this.#find(key, 0);
    if (at === -1) return undefined;
    let values = this.#part(at + VALUE);
    for (at = this.#find(key, at + STRIDE); at !== -1; at = this.#find(key, at + STRIDE)) {
      values += `, ${this.#part(at + VALUE)}`;
    }
    return values;
  }

  has(name: string): boolean {
    return this.#find(name.toLowerCase(), 0) !== -1;
  }

  append(name: string, value: string): void {
    this.#put(this.#end, name.toLowerCase(), name, value);
    this.#end += STRIDE;
  }

  /** Replaces all fields with that name by one, at the position of the first. */
  set(name: string, value: string): void {
    const key = name.toLowerCase();
    const at = this.#find(key, 0);
    if (at === -1) {
      this.append(name, value);
      return;
    }
    this.#parts[at + VALUE] = value;
    this.#deleteFrom(key, at + STRIDE);
  }

  /** Removes all fields with that name. */
  delete(name: string): void {
    this.#deleteFrom(name.toLowerCase(), 0);
  }

  /** Removes the fields for which `condition` returns true; it gets the lower-case name. */
  deleteWhere(condition: (key: string, value: string) => boolean): void {
    let kept = 0;
    for (let at = 0; at < this.#end; at += STRIDE) {
      if (condition(this.#part(at), this.#part(at + VALUE))) continue;
      this.#move(at, kept);
      kept += STRIDE;
    }
    this.#cut(kept);
  }

  /** Replaces each value with the result of `change`. */
  mapValues(change: (key: string, value: string) => string): void {
    for (let at = 0; at < this.#end; at += STRIDE) {
      this.#parts[at + VALUE] = change(this.#part(at), this.#part(at + VALUE));
    }
  }

  /** Calls the function with the lower-case name and the value of each field, in order. */
  forEach(call: (key: string, value: string) => void): void {
    for (let at = 0; at < this.#end; at += STRIDE) call(this.#part(at), this.#part(at + VALUE));
  }

  get isEmpty(): boolean {
    return this.#end === 0;
  }

  clone(): HeaderList {
    const list = new HeaderList(this.#end / STRIDE + ADDED_TO_CLONE);
    for (let i = 0; i < this.#end; i += 1) list.#parts[i] = this.#part(i);
    list.#end = this.#end;
    return list;
  }

  *[Symbol.iterator](): Iterator<readonly [string, string]> {
    for (let at = 0; at < this.#end; at += STRIDE) {
      yield [this.#part(at + NAME), this.#part(at + VALUE)];
    }
  }

  /** Alternating names and values, in the format of Node's `writeHead`. */
  toRaw(): string[] {
    const raw = new Array<string>((this.#end / STRIDE) * 2);
    for (let at = 0, to = 0; at < this.#end; at += STRIDE, to += 2) {
      raw[to] = this.#part(at + NAME);
      raw[to + 1] = this.#part(at + VALUE);
    }
    return raw;
  }

  /** Lower-case names with their values. Several values with one name are kept apart. */
  toRecord(): Record<string, string | string[]> {
    const record: Record<string, string | string[]> = Object.create(null);
    this.forEach((key, value) => {
      const present = record[key];
      if (present === undefined) record[key] = value;
      else if (typeof present === 'string') record[key] = [present, value];
      else present.push(value);
    });
    return record;
  }

  /** The place of the first field with that lower-case name, from a place on; -1 if there is none. */
  #find(key: string, from: number): number {
    for (let at = from; at < this.#end; at += STRIDE) if (this.#parts[at] === key) return at;
    return -1;
  }

  #part(index: number): string {
    return this.#parts[index] ?? '';
  }

  #put(at: number, key: string, name: string, value: string): void {
    this.#parts[at] = key;
    this.#parts[at + NAME] = name;
    this.#parts[at + VALUE] = value;
  }

  #deleteFrom(key: string, from: number): void {
    let kept = this.#find(key, from);
    if (kept === -1) return;
    for (let at = kept + STRIDE; at < this.#end; at += STRIDE) {
      if (this.#parts[at] === key) continue;
      this.#move(at, kept);
      kept += STRIDE;
    }
    this.#cut(kept);
  }

  #move(from: number, to: number): void {
    if (from === to) return;
    this.#put(to, this.#part(from), this.#part(from + NAME), this.#part(from + VALUE));
  }

  /** What was there is not kept alive: it may be a secret. */
  #cut(end: number): void {
    for (let i = end; i < this.#end; i += 1) this.#parts[i] = '';
    this.#end = end;
  }
}

function textOf(part: string | Buffer | undefined): string {
  return typeof part === 'string' ? part : (part?.toString('latin1') ?? '');
}

/** Converts text to the byte string of a field value: its UTF-8 bytes. */
export function utf8Field(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** The text of a byte string that contains UTF-8; undefined if it does not. */
export function fieldUtf8(value: string): string | undefined {
  const bytes = Buffer.from(value, 'latin1');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

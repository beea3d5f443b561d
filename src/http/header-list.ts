// Field values are byte strings, because Node reads and writes headers as latin1. `utf8Field` and `fieldText`
// convert them at the few places where text is written or read.

/** Each field has three places in the list: its lower-case name, its name as spelled, and its value. */
const STRIDE = 3;
/** Further fields for which a list has room at first. Growing it would copy it. */
const ADDED_FIELDS = 4;
const NAME = 1;
const VALUE = 2;

/** A message to which fields are added. */
interface FieldWriter {
  /** Returns false if the name or the value cannot be sent. */
  field(name: string, value: string): boolean;
}

/**
 * The fields of one message in order. Names are compared without case, and keep their spelling. Values are
 * byte strings: one character per byte of the wire, as Node reads and writes them. Use {@link utf8Field} to
 * put text into a field and {@link fieldText} to read text from one.
 */
export class HeaderList implements Iterable<readonly [name: string, value: string]> {
  /** One array for all fields, because each request has several lists, and each array takes memory. */
  #parts: string[];
  /** The used places of the array. */
  #size = 0;

  /** @param fields number of fields that will be added */
  constructor(fields = 0) {
    this.#parts = fields === 0 ? NO_PARTS : withRoom(fields);
  }

  /**
   * Creates a list from alternating names and values, such as Node's `rawHeaders`.
   *
   * @param places number of entries that are read
   */
  static fromRaw(raw: readonly string[], places = raw.length): HeaderList {
    const list = new HeaderList(Math.ceil(places / 2));
    for (let i = 0; i + 1 < places; i += 2) list.append(raw[i] ?? '', raw[i + 1] ?? '');
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
    const at = this.#find(keyOf(name), 0);
    return at === -1 ? undefined : this.#parts[at + VALUE];
  }

  /** The values of all fields with that name, in order. */
  getAll(name: string): readonly string[] {
    const key = keyOf(name);
    let at = this.#find(key, 0);
    if (at === -1) return NONE;
    const values = [this.#part(at + VALUE)];
    for (at = this.#find(key, at + STRIDE); at !== -1; at = this.#find(key, at + STRIDE)) {
      values.push(this.#part(at + VALUE));
    }
    return values;
  }

  /** All values with that name as one list (RFC 9110 §5.3). Not for `Set-Cookie`. */
  combined(name: string): string | undefined {
    const key = keyOf(name);
    let at = this.#find(key, 0);
    if (at === -1) return undefined;
    let values = this.#part(at + VALUE);
    for (at = this.#find(key, at + STRIDE); at !== -1; at = this.#find(key, at + STRIDE)) {
      values += `, ${this.#part(at + VALUE)}`;
    }
    return values;
  }

  has(name: string): boolean {
    return this.#find(keyOf(name), 0) !== -1;
  }

  append(name: string, value: string): void {
    if (this.#parts === NO_PARTS) this.#parts = [];
    const at = this.#size;
    this.#parts[at] = keyOf(name);
    this.#parts[at + NAME] = name;
    this.#parts[at + VALUE] = value;
    this.#size = at + STRIDE;
  }

  /** Replaces all fields with that name by one, at the position of the first. */
  set(name: string, value: string): void {
    const key = keyOf(name);
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
    this.#deleteFrom(keyOf(name), 0);
  }

  /** Removes the fields for which `condition` returns true; it gets the lower-case name. */
  deleteWhere(condition: (key: string, value: string) => boolean): void {
    let kept = 0;
    for (let at = 0; at < this.#size; at += STRIDE) {
      if (condition(this.#part(at), this.#part(at + VALUE))) continue;
      this.#move(at, kept);
      kept += STRIDE;
    }
    this.#size = kept;
  }

  /** Replaces each value with the result of `change`. */
  mapValues(change: (key: string, value: string) => string): void {
    for (let at = 0; at < this.#size; at += STRIDE) {
      this.#parts[at + VALUE] = change(this.#part(at), this.#part(at + VALUE));
    }
  }

  /** Calls the function with the lower-case name and the value of each field, in order. */
  forEach(call: (key: string, value: string) => void): void {
    for (let at = 0; at < this.#size; at += STRIDE) call(this.#part(at), this.#part(at + VALUE));
  }

  /** Number of fields. */
  get length(): number {
    return this.#size / STRIDE;
  }

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  clone(): HeaderList {
    const list = new HeaderList(this.#size / STRIDE);
    for (let at = 0; at < this.#size; at += 1) list.#parts[at] = this.#part(at);
    list.#size = this.#size;
    return list;
  }

  *[Symbol.iterator](): Iterator<readonly [string, string]> {
    for (let at = 0; at < this.#size; at += STRIDE) {
      yield [this.#part(at + NAME), this.#part(at + VALUE)];
    }
  }

  /** Alternating names and values, in the format of Node's `writeHead`. */
  toRaw(): string[] {
    const raw: string[] = [];
    for (let at = 0; at < this.#size; at += STRIDE) {
      raw.push(this.#part(at + NAME), this.#part(at + VALUE));
    }
    return raw;
  }

  /**
   * Adds the field lines of an HTTP/1.1 message (RFC 9112 §5), except for those with one name.
   *
   * @param except the lower-case name
   * @returns the name of a field that cannot be sent, at which it has stopped; null if there is none
   */
  writeLines(out: FieldWriter, except: string): string | null {
    for (let at = 0; at < this.#size; at += STRIDE) {
      if (this.#parts[at] === except) continue;
      const name = this.#part(at + NAME);
      if (!out.field(name, this.#part(at + VALUE))) return name;
    }
    return null;
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
    for (let at = from; at < this.#size; at += STRIDE) if (this.#parts[at] === key) return at;
    return -1;
  }

  #part(index: number): string {
    return this.#parts[index] ?? '';
  }

  #deleteFrom(key: string, from: number): void {
    let kept = this.#find(key, from);
    if (kept === -1) return;
    for (let at = kept + STRIDE; at < this.#size; at += STRIDE) {
      if (this.#parts[at] === key) continue;
      this.#move(at, kept);
      kept += STRIDE;
    }
    this.#size = kept;
  }

  #move(from: number, to: number): void {
    if (from === to) return;
    for (let part = 0; part < STRIDE; part += 1) this.#parts[to + part] = this.#part(from + part);
  }
}

const NONE: readonly string[] = [];
/** The parts of all lists that never had any. */
const NO_PARTS: string[] = [];

/** An array for the parts of so many fields, and of some more. */
function withRoom(fields: number): string[] {
  // oxlint-disable-next-line unicorn/no-new-array -- `Array.from` would write all places.
  return new Array<string>(STRIDE * (fields + ADDED_FIELDS));
}

/** Names with their lower-case form, which `toLowerCase` would allocate again for each field. */
const keys = new Map<string, string>();
/** Names and characters of a name that are kept; clients send names of any kind. */
const MAX_KEPT_NAMES = 512;
const MAX_KEPT_LENGTH = 64;

function keyOf(name: string): string {
  const kept = keys.get(name);
  if (kept !== undefined) return kept;
  const key = name.toLowerCase();
  if (keys.size < MAX_KEPT_NAMES && name.length <= MAX_KEPT_LENGTH)
    keys.set(copyOf(name), copyOf(key));
  return key;
}

/** A copy that shares no memory with the text of a whole head, of which a name may be a part. */
function copyOf(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}

/** Converts text to the byte string of a field value: its UTF-8 bytes. */
export function utf8Field(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** The text of a field value; one that is not UTF-8 stays as it is. */
export function fieldText(value: string): string {
  return fieldUtf8(value) ?? value;
}

const BEYOND_ASCII = /[\u0080-\uffff]/;

/** The text of a byte string that contains UTF-8; undefined if it does not. */
export function fieldUtf8(value: string): string | undefined {
  if (!BEYOND_ASCII.test(value)) return value;
  const bytes = Buffer.from(value, 'latin1');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

// Field values are byte strings, because Node reads and writes headers as latin1. `utf8Field` and `fieldUtf8`
// convert them at the few places where text is written or read.

/**
 * The fields of one message in order. Names are compared without case, and keep their spelling. Values are
 * byte strings: one character per byte of the wire, as Node reads and writes them. Use {@link utf8Field} to
 * put text into a field and {@link fieldUtf8} to read text from one.
 */
export class HeaderList implements Iterable<readonly [name: string, value: string]> {
  #names: string[] = [];
  #keys: string[] = [];
  #values: string[] = [];

  /** Creates a list from the alternating names and values of Node's `rawHeaders`. */
  static fromRaw(raw: readonly string[]): HeaderList {
    const list = new HeaderList();
    for (let i = 0; i + 1 < raw.length; i += 2) list.append(raw[i] ?? '', raw[i + 1] ?? '');
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
    const index = this.#keys.indexOf(name.toLowerCase());
    return index === -1 ? undefined : this.#values[index];
  }

  /** The values of all fields with that name, in order. */
  getAll(name: string): string[] {
    const key = name.toLowerCase();
    return this.#values.filter((_, index) => this.#keys[index] === key);
  }

  /** All values with that name as one list (RFC 9110 §5.3). Not for `Set-Cookie`. */
  combined(name: string): string | undefined {
    const values = this.getAll(name);
    return values.length === 0 ? undefined : values.join(', ');
  }

  has(name: string): boolean {
    return this.#keys.includes(name.toLowerCase());
  }

  append(name: string, value: string): void {
    this.#names.push(name);
    this.#keys.push(name.toLowerCase());
    this.#values.push(value);
  }

  /** Replaces all fields with that name by one, at the position of the first. */
  set(name: string, value: string): void {
    const index = this.#keys.indexOf(name.toLowerCase());
    if (index === -1) {
      this.append(name, value);
      return;
    }
    this.#values[index] = value;
    this.#deleteFrom(name, index + 1);
  }

  /** Removes all fields with that name. */
  delete(name: string): void {
    this.#deleteFrom(name, 0);
  }

  /** Removes the fields for which `condition` returns true; it gets the lower-case name. */
  deleteWhere(condition: (key: string, value: string) => boolean): void {
    let kept = 0;
    for (let i = 0; i < this.#keys.length; i += 1) {
      if (condition(this.#keys[i] ?? '', this.#values[i] ?? '')) continue;
      this.#move(i, kept);
      kept += 1;
    }
    this.#cut(kept);
  }

  /** Replaces each value with the result of `change`. */
  mapValues(change: (key: string, value: string) => string): void {
    for (let i = 0; i < this.#keys.length; i += 1) {
      this.#values[i] = change(this.#keys[i] ?? '', this.#values[i] ?? '');
    }
  }

  /** Calls the function with the lower-case name and the value of each field, in order. */
  forEach(call: (key: string, value: string) => void): void {
    for (let i = 0; i < this.#keys.length; i += 1) call(this.#keys[i] ?? '', this.#values[i] ?? '');
  }

  get isEmpty(): boolean {
    return this.#keys.length === 0;
  }

  clone(): HeaderList {
    const list = new HeaderList();
    list.#names = this.#names.slice();
    list.#keys = this.#keys.slice();
    list.#values = this.#values.slice();
    return list;
  }

  *[Symbol.iterator](): Iterator<readonly [string, string]> {
    for (let i = 0; i < this.#names.length; i += 1) {
      yield [this.#names[i] ?? '', this.#values[i] ?? ''];
    }
  }

  /** Alternating names and values, in the format of Node's `writeHead`. */
  toRaw(): string[] {
    const raw: string[] = [];
    for (let i = 0; i < this.#names.length; i += 1) {
      raw.push(this.#names[i] ?? '', this.#values[i] ?? '');
    }
    return raw;
  }

  /** Lower-case names with their values. Several values with one name are kept apart. */
  toRecord(): Record<string, string | string[]> {
    const record: Record<string, string | string[]> = Object.create(null);
    for (let i = 0; i < this.#keys.length; i += 1) {
      const key = this.#keys[i] ?? '';
      const value = this.#values[i] ?? '';
      const present = record[key];
      if (present === undefined) record[key] = value;
      else if (typeof present === 'string') record[key] = [present, value];
      else present.push(value);
    }
    return record;
  }

  #deleteFrom(name: string, start: number): void {
    const key = name.toLowerCase();
    let kept = this.#keys.indexOf(key, start);
    if (kept === -1) return;
    for (let i = kept + 1; i < this.#keys.length; i += 1) {
      if (this.#keys[i] === key) continue;
      this.#move(i, kept);
      kept += 1;
    }
    this.#cut(kept);
  }

  #move(from: number, to: number): void {
    if (from === to) return;
    this.#names[to] = this.#names[from] ?? '';
    this.#keys[to] = this.#keys[from] ?? '';
    this.#values[to] = this.#values[from] ?? '';
  }

  #cut(length: number): void {
    if (length === this.#keys.length) return;
    this.#names.length = length;
    this.#keys.length = length;
    this.#values.length = length;
  }
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

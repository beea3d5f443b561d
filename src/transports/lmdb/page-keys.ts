import { ID_BYTES } from './page-format.ts';

/** A key on a page in a window. */
export interface Key {
  bytes: Buffer | null;
  from: number;
  length: number;
}

/** Without an object of its own: a walk would make millions. */
export function setKey(key: Key, bytes: Buffer | null, from: number, length: number): void {
  key.bytes = bytes;
  key.from = from;
  key.length = length;
}

export function copyKey(key: Key, { bytes, from, length }: Key): void {
  setKey(key, bytes, from, length);
}

/** As LMDB compares keys: byte for byte, the shorter first; or as numbers. */
export function compareKeys(
  a: Buffer,
  aFrom: number,
  aLength: number,
  b: Buffer,
  bFrom: number,
  bLength: number,
  isNumber: boolean,
): number {
  if (isNumber) {
    for (let index = ID_BYTES - 1; index >= 0; index -= 1) {
      const difference = (a[aFrom + index] ?? 0) - (b[bFrom + index] ?? 0);
      if (difference !== 0) return difference;
    }
    return 0;
  }
  const common = aLength < bLength ? aLength : bLength;
  for (let index = 0; index < common; index += 1) {
    const difference = (a[aFrom + index] ?? 0) - (b[bFrom + index] ?? 0);
    if (difference !== 0) return difference;
  }
  return aLength - bLength;
}

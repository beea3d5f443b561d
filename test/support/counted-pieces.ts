import { mock } from 'node:test';

/** How many pieces texts are split into, at most, while `work` is done. */
export function piecesOf(work: () => void): number {
  const { split } = String.prototype;
  let pieces = 0;
  const counted = mock.method(
    String.prototype,
    'split',
    function counting(this: string, ...how: Parameters<typeof split>): string[] {
      const parts: string[] = Reflect.apply(split, this, how);
      pieces += parts.length;
      return parts;
    },
  );
  try {
    work();
  } finally {
    counted.mock.restore();
  }
  return pieces;
}

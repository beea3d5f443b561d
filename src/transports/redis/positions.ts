// Redis may lose the end of its log in a failover. Each entry has a random key and names the one
// before it, so every node notices. Entries that replace lost ones get positions of their own, and
// to the hub the lost ones look evicted.

/** A stretch of the stored log, and how far the positions that the hub sees are ahead of it. */
interface Segment {
  readonly first: number;
  /** Including; Infinity for the newest. */
  readonly last: number;
  readonly shift: number;
}

/**
 * Positions as the hub sees them. A store that fails over may give a position twice; here what
 * replaces a lost entry gets the next free position, so that they only grow.
 */
export class Positions {
  #segments: readonly Segment[] = [{ first: 1, last: Infinity, shift: 0 }];

  /** Where the hub sees a stored position. */
  seen(stored: number): number {
    const segment = this.#segments.findLast(({ first }) => first <= stored);
    return stored + (segment?.shift ?? 0);
  }

  /** The first stored position that the hub sees behind `seen`. */
  after(seen: number): number {
    for (const { first, last, shift } of this.#segments) {
      if (last + shift > seen) return Math.max(first, seen - shift + 1);
    }
    return seen + 1;
  }

  /** Everything behind the stored position `common` is lost; what comes is seen behind `newest`. */
  rewind(common: number, newest: number): void {
    const kept = this.#segments
      .filter(({ first }) => first <= common)
      .map((segment) => ({ ...segment, last: Math.min(segment.last, common) }));
    this.#segments = [...kept, { first: common + 1, last: Infinity, shift: newest - common }];
  }
}

const MIN_BEGINNING = 4;

/** The known name closest to the written one, if it is close enough to be the intended one. */
export function nearestName(written: string, known: Iterable<string>): string | undefined {
  const text = written.toLowerCase().replaceAll('-', '_').slice(0, 64);
  const reach = Math.floor(text.length / 3);
  let best: { name: string; distance: number } | undefined;
  for (const name of known) {
    const distance = editDistance(text, name.toLowerCase().replaceAll('-', '_'));
    if (distance <= reach && (best === undefined || distance < best.distance)) {
      best = { name, distance };
    }
  }
  return best?.name ?? nameWithSameBeginning(text, known);
}

/** For example `redirect` for `redir`, or `proto` for `protocol`. */
function nameWithSameBeginning(text: string, known: Iterable<string>): string | undefined {
  for (const name of known) {
    const [short, long] = name.length < text.length ? [name, text] : [text, name];
    if (short.length >= MIN_BEGINNING && long.startsWith(short)) return name;
  }
  return undefined;
}

/** The number of insertions, deletions, replacements and swaps of neighbours between two texts. */
function editDistance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (last[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      let cost = Math.min(replaced, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        cost = Math.min(cost, (beforeLast[j - 2] ?? 0) + 1);
      }
      row.push(cost);
    }
    beforeLast = last;
    last = row;
  }
  return last[to.length] ?? 0;
}

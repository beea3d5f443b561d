/** Pairs of lines that are compared with each other; beyond it everything counts as changed. */
const MAX_COMPARISONS = 4_000_000;

/** Every line of two texts, behind ` ` where both have it, `-` where only the first, `+` the second. */
export function lineDiff(before: string, after: string): string {
  const [old, young] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < old.length && start < young.length && old[start] === young[start]) start += 1;
  let end = 0;
  while (
    end < Math.min(old.length, young.length) - start &&
    old.at(-1 - end) === young.at(-1 - end)
  ) {
    end += 1;
  }
  const middle = changes(
    old.slice(start, old.length - end),
    young.slice(start, young.length - end),
  );
  return [
    ...marked(' ', old.slice(0, start)),
    ...middle,
    ...marked(' ', old.slice(old.length - end)),
  ].join('\n');
}

function changes(old: readonly string[], young: readonly string[]): string[] {
  if (old.length * young.length > MAX_COMPARISONS) {
    return [...marked('-', old), ...marked('+', young)];
  }
  const common = commonLengths(old, young);
  const at = (i: number, j: number): number => common[i]?.[j] ?? 0;
  const lines: string[] = [];
  let [i, j] = [0, 0];
  while (i < old.length && j < young.length) {
    if (old[i] === young[j]) {
      lines.push(` ${old[i]}`);
      i += 1;
      j += 1;
    } else if (at(i + 1, j) >= at(i, j + 1)) {
      lines.push(`-${old[i]}`);
      i += 1;
    } else {
      lines.push(`+${young[j]}`);
      j += 1;
    }
  }
  return [...lines, ...marked('-', old.slice(i)), ...marked('+', young.slice(j))];
}

/** Length of the longest common subsequence of what follows each pair of lines. */
function commonLengths(old: readonly string[], young: readonly string[]): Uint32Array[] {
  const rows = Array.from({ length: old.length + 1 }, () => new Uint32Array(young.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = young.length - 1; j >= 0; j -= 1) {
      const [row, next] = [rows[i], rows[i + 1]];
      if (row === undefined || next === undefined) continue;
      row[j] =
        old[i] === young[j] ? (next[j + 1] ?? 0) + 1 : Math.max(next[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return rows;
}

function marked(mark: string, lines: readonly string[]): string[] {
  return lines.map((line) => mark + line);
}

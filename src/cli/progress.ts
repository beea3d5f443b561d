/** Tells on a terminal how far something is; a file or a pipe is spared. */
export interface Progress {
  at(count: number): void;
  end(): void;
}

/** @param total null when it is not known */
export function createProgress(what: string, total: number | null): Progress {
  const { stderr } = process;
  if (!stderr.isTTY) return { at() {}, end() {} };
  const of = total === null ? '' : ` of ${total}`;
  return {
    at: (count) => void stderr.write(`\r${count}${of} ${what}`),
    end: () => void stderr.write('\r\u001b[K'),
  };
}

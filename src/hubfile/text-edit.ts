/** A stretch of a text that is replaced; nothing is inserted where it is empty. */
export interface TextEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A changed text that knows where each of its characters stood. */
export interface EditedText {
  readonly text: string;
  /** The offset in the text before of one in the changed text; of what is new that of its edit. */
  before(at: number): number;
}

/** Of edits within each other the outer one counts; what is inserted before one stays before it. */
export function editText(text: string, edits: readonly TextEdit[]): EditedText {
  const isNew = ({ start, end }: TextEdit): number => (start === end ? 0 : 1);
  const ordered = [...edits].sort(
    (a, b) => a.start - b.start || isNew(a) - isNew(b) || b.end - a.end,
  );
  const pieces: { readonly start: number; readonly original: number; readonly kept: boolean }[] =
    [];
  let result = '';
  let from = 0;
  const add = (piece: string, original: number, kept: boolean): void => {
    pieces.push({ start: result.length, original, kept });
    result += piece;
  };
  for (const edit of ordered) {
    if (edit.start < from) continue;
    add(text.slice(from, edit.start), from, true);
    add(edit.text, edit.start, false);
    from = edit.end;
  }
  add(text.slice(from), from, true);
  return {
    text: result,
    before: (at) => {
      const piece = pieces.findLast(({ start }) => start <= at);
      if (piece === undefined) return at;
      return piece.kept ? piece.original + at - piece.start : piece.original;
    },
  };
}

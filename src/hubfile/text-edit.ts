/** A range of a text that is replaced; an empty range inserts text. */
export interface TextEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A changed text with the original position of each of its characters. */
export interface EditedText {
  readonly text: string;
  /** Maps an offset of the changed text to the original text; new text maps to its edit. */
  before(at: number): number;
}

/** Of nested edits, the outer one applies. Text that is inserted before an edit stays before it. */
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

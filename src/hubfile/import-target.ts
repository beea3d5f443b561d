import { dirname, isAbsolute, join, resolve } from 'node:path';
import type { Word } from './parser.ts';
import type { Problems } from './place.ts';

/** The target of an `import` that is not a snippet. */
export interface ImportTarget {
  /** Absolute: a path, or a pattern of paths. */
  readonly path: string;
  readonly isPattern: boolean;
  /** A pattern with more than one `*` or `?` in its names, or with `[`. */
  readonly isRefused: boolean;
}

/** The importing file, with its name for the operator and its path. */
export interface ImportingFile {
  readonly file: string;
  readonly path: string;
}

/** Most imports, and deepest nesting of imports, of a configuration. */
export const MAX_IMPORTS = 10_000;
export const MAX_IMPORT_DEPTH = 100;

/** Relative names are relative to the importing file. */
export function importTarget(text: string, importing: ImportingFile): ImportTarget {
  // A pattern that ends with ** means every file.
  const path = resolve(dirname(importing.path), text.replace(/(?<=^|\/)\*\*$/, '**/*'));
  // `**` must be a path segment of its own; in addition, a name may contain one star.
  const rest = text.replace(/(?<=^|\/)\*\*(?:\/|$)/, '');
  return {
    path,
    isPattern: /[*?[]/.test(text),
    isRefused: /\[|\*.*\*|\?.*\?/.test(rest),
  };
}

/** The name of a path for the operator: relative if the import was. */
export function shownPath(path: string, text: string, importing: ImportingFile): string {
  const base = dirname(importing.path);
  if (isAbsolute(text) || !path.startsWith(`${base}/`)) return path;
  return join(dirname(importing.file), path.slice(base.length + 1));
}

const WHOLE = /^\{args\[(-?\d*):(-?\d*)\]\}$/;
const INDEX = /\{args(?:\[([^\]{}]*)\]|\.(\d+))\}/g;

/** The arguments that an `import` passes to the imported snippet or file. */
export class Arguments {
  readonly #words: readonly Word[];

  constructor(words: readonly Word[]) {
    this.#words = words;
  }

  /**
   * A word with `{args[0]}` and `{args[0:2]}` replaced. Placeholders that cannot be replaced stay, with a
   * warning.
   */
  putInto(word: Word, problems: Problems): Word[] {
    const whole = WHOLE.exec(word.text);
    if (whole !== null) {
      const chosen = this.#range(whole[1] ?? '', whole[2] ?? '');
      if (chosen === null) {
        problems.warn(
          word.span,
          'argument-out-of-range',
          `${word.text} does not fit ${this.#count()}`,
        );
        return [word];
      }
      return chosen.map((argument) => ({ ...argument, span: word.span }));
    }
    let { replaced } = word;
    let { plain } = word;
    const text = word.text.replaceAll(INDEX, (placeholder, index?: string, dotted?: string) => {
      const argument = this.#at(index ?? dotted ?? '');
      if (argument === null) {
        const message = (index ?? '').includes(':')
          ? `${placeholder} must be a separate word`
          : `${placeholder} does not fit ${this.#count()}`;
        problems.warn(word.span, 'argument-out-of-range', message);
        return placeholder;
      }
      replaced ||= argument.replaced;
      if (placeholder === word.text) plain &&= argument.plain;
      return argument.text;
    });
    return [{ ...word, text, plain, replaced }];
  }

  #at(index: string): Word | null {
    return /^\d{1,6}$/.test(index) ? (this.#words[Number(index)] ?? null) : null;
  }

  #range(from: string, to: string): readonly Word[] | null {
    const start = from === '' ? 0 : Number(from);
    const end = to === '' ? this.#words.length : Number(to);
    if (start < 0 || end < start || end > this.#words.length) return null;
    return this.#words.slice(start, end);
  }

  #count(): string {
    const count = this.#words.length;
    return `the ${count === 1 ? '1 argument' : `${count} arguments`} of the import`;
  }
}

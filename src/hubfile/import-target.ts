import { dirname, isAbsolute, join, resolve } from 'node:path';

/** What an `import` names that is no snippet. */
export interface ImportTarget {
  /** Absolute: a path, or a pattern of paths. */
  readonly path: string;
  readonly isPattern: boolean;
  /** A pattern with more than one `*` or `?` in its names, or with `[`. */
  readonly isRefused: boolean;
}

/** The importing file, as the operator named it and as a path. */
export interface ImportingFile {
  readonly file: string;
  readonly path: string;
}

/** More imports make no configuration; nor do some within each other deeper than this. */
export const MAX_IMPORTS = 10_000;
export const MAX_IMPORT_DEPTH = 100;

/** Relative names are relative to the importing file. */
export function importTarget(text: string, importing: ImportingFile): ImportTarget {
  // A pattern that ends with ** means every file.
  const path = resolve(dirname(importing.path), text.replace(/(?<=^|\/)\*\*$/, '**/*'));
  // `**` stands as a directory of its own; a name may have one star beside it.
  const rest = text.replace(/(?<=^|\/)\*\*(?:\/|$)/, '');
  return {
    path,
    isPattern: /[*?[]/.test(text),
    isRefused: /\[|\*.*\*|\?.*\?/.test(rest),
  };
}

/** A path as the operator would name it: relative where the import was. */
export function shownPath(path: string, text: string, importing: ImportingFile): string {
  const base = dirname(importing.path);
  if (isAbsolute(text) || !path.startsWith(`${base}/`)) return path;
  return join(dirname(importing.file), path.slice(base.length + 1));
}

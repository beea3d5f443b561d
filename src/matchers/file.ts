import { list as listShape, nullable, object } from '../config/shape.ts';
import { name as nameShape, oneOf, text } from '../config/shape-values.ts';
import { isTriedFile, TRY_POLICIES, type TryPolicy } from '../config/well-formed.ts';
import { checkTried, list, name, triedFiles, tryPolicy } from '../hubfile/values.ts';
import { tryFiles } from '../site/site-files.ts';
import type { Matcher } from './matcher.ts';

export interface FileCondition {
  readonly kind: 'file';
  /** null: the `root` of the site. */
  readonly root: string | null;
  /** Paths below the root, with placeholders; the last one may be `=404`. */
  readonly files: readonly string[];
  readonly policy: TryPolicy;
  /** Ends of names after which the rest of the path does not belong to the file: `.php`. */
  readonly splitPath: readonly string[];
}

export const defaultFile: FileCondition = {
  kind: 'file',
  root: null,
  files: ['{path}'],
  policy: 'first_exist',
  splitPath: [],
};

const { kind: _kind, ...defaults } = defaultFile;

export const file: Matcher<FileCondition> = {
  data: {
    shape: () =>
      object(
        {
          root: nullable(nameShape('a directory')),
          files: listShape(text('a path, or a status such as =404', isTriedFile), { min: 1 }),
          policy: oneOf(...TRY_POLICIES),
          splitPath: listShape(nameShape('the end of a name such as .php')),
        },
        defaults,
      ),
    asksFiles: true,
  },
  syntax: {
    usage:
      'file [<file…>]\nfile { root <dir>; try_files <file…>; try_policy <policy>; split_path <end…> }',
    summary: 'a file that exists; `{file_match.relative}` is its path',
    read(cursor) {
      const words = cursor.rest();
      const start =
        words.length === 0 ? defaultFile : { ...defaultFile, files: triedFiles(cursor, words) };
      const condition = cursor.options(start, {
        root: (option) => ({ root: name(option, 'a directory') }),
        try_files: (option) => ({
          files: triedFiles(option, option.several('a path such as {path}')),
        }),
        try_policy: (option) => ({ policy: tryPolicy(option) }),
        split_path: (option) => ({ splitPath: list(option, 'the end of a name such as .php') }),
      });
      checkTried(cursor, condition.files, condition.policy);
      return [condition];
    },
    // As in Caddy, the files of both are tried, and other options of the later one count.
    merge: (a, b) => {
      const files = [a, b].flatMap((one) => (one.files === defaultFile.files ? [] : one.files));
      return {
        ...a,
        root: b.root ?? a.root,
        files: files.length === 0 ? defaultFile.files : files,
        policy: b.policy === defaultFile.policy ? a.policy : b.policy,
        splitPath: b.splitPath.length === 0 ? a.splitPath : b.splitPath,
      };
    },
  },
  /** The file that was found is stored in `{file_match.relative}` and similar placeholders. */
  compile: (condition, _compileMatcher, hidesFile) => async (exchange) =>
    (await tryFiles(exchange, condition, hidesFile)) !== null,
};

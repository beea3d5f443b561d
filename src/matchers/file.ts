import { defaultsOf, list, object, type Of, optional, withDefault } from '../config/shape.ts';
import { name, names, oneOf, text } from '../config/shape-values.ts';
import { isTriedFile, TRY_POLICIES } from '../config/well-formed.ts';
import { checkTried, optionsOf, triedFiles, tryPolicy } from '../hubfile/values.ts';
import { tryFiles } from '../site/site-files.ts';
import type { Matcher } from './matcher.ts';

const triedFile = text('a path, or a status such as =404', isTriedFile);

const members = {
  /** null: the `root` of the site. */
  root: optional(name('a directory')),
  /** Paths below the root, with placeholders; the last one may be `=404`. */
  files: withDefault(list(triedFile, { min: 1 }), ['{path}']),
  policy: withDefault(oneOf(...TRY_POLICIES), 'first_exist'),
  /** Ends of names after which the rest of the path does not belong to the file: `.php`. */
  splitPath: withDefault(names('the end of a name such as .php'), []),
};

export interface FileCondition extends Of<typeof members> {
  readonly kind: 'file';
}

export const defaultFile: FileCondition = { kind: 'file', ...defaultsOf(members) };

export const file: Matcher<FileCondition> = {
  data: { shape: () => object(members), asksFiles: true },
  syntax: {
    usage:
      'file [<file…>]\nfile { root <dir>; try_files <file…>; try_policy <policy>; split_path <end…> }',
    summary: 'a file that exists; `{file_match.relative}` is its path',
    read(cursor) {
      const words = cursor.rest();
      const start =
        words.length === 0 ? defaultFile : { ...defaultFile, files: triedFiles(cursor, words) };
      const condition = cursor.options(start, {
        ...optionsOf(members, { files: 'try_files', policy: 'try_policy' }),
        try_files: (option) => ({
          files: triedFiles(option, option.several('a path such as {path}')),
        }),
        try_policy: (option) => ({ policy: tryPolicy(option) }),
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

import type { ConditionData } from '../../config/condition-data.ts';
import { list, nullable, object } from '../../config/shape.ts';
import { name, oneOf, text } from '../../config/shape-values.ts';
import { isTriedFile, TRY_POLICIES, type TryPolicy } from '../../config/try-files.ts';

export interface FileCondition {
  readonly kind: 'file';
  /** null: the `root` of the site. */
  readonly root: string | null;
  /** Paths below the root, with placeholders; the last maybe `=404`. */
  readonly files: readonly string[];
  readonly policy: TryPolicy;
  /** Ends of names after which the rest of the path is no file's: `.php`. */
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

export const file: ConditionData<FileCondition> = {
  shape: () =>
    object(
      {
        root: nullable(name('a directory')),
        files: list(text('a path, or a status such as =404', isTriedFile), { min: 1 }),
        policy: oneOf(...TRY_POLICIES),
        splitPath: list(name('the end of a name such as .php')),
      },
      defaults,
    ),
  asksFiles: true,
};

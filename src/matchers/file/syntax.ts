import type { ConditionSyntax } from '../../hubfile/condition-syntax.ts';
import { checkTried, triedFiles, tryPolicy } from '../../hubfile/tried-files.ts';
import { list, name } from '../../hubfile/values.ts';
import { defaultFile, type FileCondition } from './data.ts';

export const file: ConditionSyntax<FileCondition> = {
  usage:
    'file [<file…>]\nfile { root <dir>; try_files <file…>; try_policy <policy>; split_path <end…> }',
  summary: 'a file that is there; `{file_match.relative}` is which',
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
};

import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { checkTried, triedFiles, tryPolicy } from '../../hubfile/tried-files.ts';
import type { TryFilesConfig } from './data.ts';

const USAGE = `
try_files <file…> [=<status>] {
    policy first_exist|smallest_size|largest_size|most_recently_modified
}
`;

export const tryFiles: Directive = {
  usage: USAGE,
  summary: 'rewrites the path to the first of some files that is there',
  read(cursor, scope) {
    const word = cursor.peek();
    // A path is a file here, so that only a matcher by its name can be one.
    const matcher = word?.text.startsWith('@') === true ? takeMatcher(cursor, scope) : null;
    const files = triedFiles(cursor, cursor.several('a path such as {path}'));
    const start: Pick<TryFilesConfig, 'policy'> = { policy: 'first_exist' };
    const { policy } = cursor.options(start, { policy: (o) => ({ policy: tryPolicy(o) }) });
    cursor.end();
    checkTried(cursor, files, policy);
    return [step(cursor, matcher, { kind: 'try_files', files, policy, splitPath: [] })];
  },
};

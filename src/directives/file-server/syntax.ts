import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { list, name } from '../../hubfile/values.ts';

const USAGE = `
file_server [<matcher>] {
    root <directory>
    index <file…>
    hide <file…>
}
`;

export const fileServer: Directive = {
  usage: USAGE,
  summary: 'answers with files below the root',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const browse = cursor.peek();
    if (browse?.text === 'browse') {
      const message = 'file_server browse is not supported by hubgate';
      cursor.fail(browse.span, 'unsupported-option', message, 'serve an index.html instead');
    }
    const start: { root: string | null; index: readonly string[]; hide: readonly string[] } = {
      root: null,
      index: ['index.html'],
      hide: [],
    };
    const settings = cursor.options(start, {
      root: (option) => ({ root: name(option, 'a directory') }),
      index: (option) => ({ index: list(option, 'a file name') }),
      hide: (option) => ({ hide: list(option, 'a file name or path') }),
    });
    cursor.end();
    return [step(cursor, matcher, { kind: 'file_server', ...settings })];
  },
};

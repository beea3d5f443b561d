import type { Cursor } from '../../hubfile/cursor.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { choiceOf, size } from '../../hubfile/values.ts';

type Encoding = 'gzip' | 'br' | 'zstd';

const ENCODINGS: readonly Encoding[] = ['gzip', 'br', 'zstd'];

const USAGE = `
encode [<matcher>] [zstd] [br] [gzip] {
    zstd
    br
    gzip
    minimum_length <size>
}
`;

/** Without any encoding named: br, then gzip. */
export const encode: Directive = {
  usage: USAGE,
  summary: 'compresses text in what is answered',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const encodings = cursor.rest().map((word) => choiceOf(cursor, word, ENCODINGS));
    const start: { encodings: readonly Encoding[]; minimumLength: number } = {
      encodings,
      minimumLength: 512,
    };
    const also = (encoding: Encoding) => (_: Cursor, sofar: typeof start) => ({
      encodings: [...sofar.encodings, encoding],
    });
    const settings = cursor.options(
      start,
      {
        gzip: also('gzip'),
        br: also('br'),
        zstd: also('zstd'),
        minimum_length: (option) => ({ minimumLength: size(option) }),
      },
      {
        unsupported: { match: 'only text-like types are encoded; use a matcher to limit requests' },
      },
    );
    cursor.end();
    const chosen: readonly Encoding[] =
      settings.encodings.length > 0 ? [...new Set(settings.encodings)] : ['br', 'gzip'];
    return [step(cursor, matcher, { kind: 'encode', ...settings, encodings: chosen })];
  },
};

import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue } from '../../hubfile/values.ts';
import { isDestination, type MapCase } from './data.ts';

const USAGE = `
map [<matcher>] <source> <destination…> {
    <input> <output…>
    ~<regexp> <output…>
    default <output…>
}
`;

export const map: Directive = {
  usage: USAGE,
  summary: 'gives variables values that depend on another value',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const source = cursor.argument('a source such as {host}').text;
    const destinations = cursor
      .several('a destination such as {name}')
      .map((word) => destination(cursor, word));
    cursor.block();
    const cases: MapCase[] = [];
    let defaults: readonly string[] | null = null;
    for (const line of cursor.lines()) {
      cursor.problems.attempt(() => {
        const [input] = line.line.words;
        const outputs = line.rest().map(({ text }) => text);
        if (input === undefined) return;
        if (outputs.length !== destinations.length) {
          const message = `${destinations.length} outputs are needed, one for each destination, not ${outputs.length}`;
          line.fail(line.span, 'expected-argument', message);
        }
        line.end();
        if (input.plain && input.text === 'default') {
          if (defaults !== null) line.fail(line.span, 'duplicate-option', 'default is given twice');
          defaults = outputs;
          return;
        }
        cases.push(mapCase(line, input, outputs));
      });
    }
    cursor.end();
    return [
      step(cursor, matcher, { kind: 'map', source, destinations, cases, defaults: defaults ?? [] }),
    ];
  },
};

/** `{name}`, as a Caddyfile writes it, or the name alone. */
function destination(cursor: Cursor, word: Word): string {
  const name = word.text.replace(/^\{(.*)\}$/s, '$1');
  return isDestination(name)
    ? name
    : badValue(cursor, word, 'a destination such as {name}, which no placeholder is called');
}

function mapCase(line: Cursor, { text, span }: Word, written: readonly string[]): MapCase {
  const outputs = written.map((output) => (output === '-' ? null : output));
  const isPattern = text.startsWith('~');
  const pattern = isPattern ? text.slice(1) : null;
  const found: MapCase = { input: isPattern ? null : text, pattern, outputs };
  line.origins.mark(found, line.span, new Map([['pattern', span]]));
  return found;
}

import type { Cursor } from '../../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue, count, name, oneOf, text } from '../../hubfile/values.ts';
import type { QueryChange, UriChange } from './data.ts';

const USAGE = `
uri [<matcher>] strip_prefix <prefix>
uri [<matcher>] strip_suffix <suffix>
uri [<matcher>] replace <find> <replacement> [<limit>]
uri [<matcher>] path_regexp <regexp> <replacement>
uri [<matcher>] query [-|+]<name> [<value>|<regexp> <replacement>] {
    <name> <value>
    +<name> <value>
    -<name>
    <name>><new name>
    <name>|* <regexp> <replacement>
}
`;

export const uri: DirectiveSyntax = {
  usage: USAGE,
  summary: 'takes something off the path, or replaces something in path or query',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const change = changeOf(cursor);
    cursor.end();
    return [step(cursor, matcher, { kind: 'uri', change })];
  },
};

function changeOf(cursor: Cursor): UriChange {
  const kinds = ['strip_prefix', 'strip_suffix', 'replace', 'path_regexp', 'query'] as const;
  const kind = oneOf(cursor, kinds);
  switch (kind) {
    case 'strip_prefix': {
      const prefix = name(cursor, 'a text');
      return { kind, text: /^[/{]/.test(prefix) ? prefix : `/${prefix}` };
    }
    case 'strip_suffix':
      return { kind, text: name(cursor, 'a text') };
    case 'replace': {
      const found = name(cursor, 'a text');
      const replacement = text(cursor, 'a replacement');
      return { kind, text: found, replacement, limit: cursor.left > 0 ? count(cursor) : 0 };
    }
    case 'path_regexp':
      return withPattern(cursor, { kind });
    case 'query':
      return { kind, changes: queryChanges(cursor) };
  }
}

function queryChanges(cursor: Cursor): readonly QueryChange[] {
  const changes: QueryChange[] = [];
  if (cursor.left > 0 || !cursor.hasBlock) changes.push(queryChange(cursor));
  for (const line of cursor.lines()) {
    cursor.problems.attempt(() => {
      changes.push(queryChange(line, line.name));
      line.end();
    });
  }
  return changes;
}

/** @param first the name of the parameter, with its sign, where it begins the line */
function queryChange(cursor: Cursor, first?: string): QueryChange {
  const word =
    first === undefined ? cursor.argument('the name of a parameter') : cursor.line.words[0];
  const written = word?.text ?? '';
  if (word === undefined || /^[-+]?$/.test(written)) {
    return word === undefined
      ? cursor.fail(cursor.span, 'expected-argument', 'the name of a parameter is missing here')
      : badValue(cursor, word, 'the name of a parameter');
  }
  if (written.startsWith('-')) return { kind: 'delete', name: written.slice(1) };
  const value = 'a value, or a regular expression and its replacement';
  if (written.startsWith('+')) {
    return { kind: 'add', name: written.slice(1), value: text(cursor, 'a value') };
  }
  const [from = '', to] = written.split(/>(.*)/s);
  if (to !== undefined) {
    if (from === '' || to === '') badValue(cursor, word, 'two names with > between them');
    return { kind: 'rename', name: from, to };
  }
  if (cursor.left > 1) return withPattern(cursor, { kind: 'replace', name: written });
  if (written === '*' && cursor.left === 1) {
    const hint = 'give * a regular expression and its replacement';
    return cursor.fail(word.span, 'bad-value', '* stands for all parameters', hint);
  }
  return { kind: 'set', name: written, value: text(cursor, value) };
}

function withPattern<Change extends object>(cursor: Cursor, change: Change) {
  const word = cursor.argument('a regular expression');
  const replacement = text(cursor, 'a replacement');
  const result = { ...change, pattern: word.text, replacement };
  cursor.origins.mark(result, cursor.span, new Map([['pattern', word.span]]));
  return result;
}

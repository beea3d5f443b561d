import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import type { Cursor } from './cursor.ts';
import type { Word } from './parser.ts';
import { badValue, choiceOf, headerName, ranges } from './values.ts';

/**
 *     path           /exact /prefix/* *.php
 *     path_regexp    [<name>] <regexp>
 *     host           example.com *.example.com
 *     method         GET POST
 *     header         <field> [<value>]        !<field>: must be absent
 *     header_regexp  [<name>] <field> <regexp>
 *     query          key=value key=*
 *     protocol       http|https|grpc|http/1.1|http/2
 *     remote_ip      <ranges…>|private_ranges
 *     client_ip      <ranges…>|private_ranges
 *     not            <condition>, or a block
 */
type ReadCondition = (
  cursor: Cursor,
  nested: (cursor: Cursor) => RequestMatcher,
) => MatchCondition[];

const CONDITIONS: Readonly<Record<string, ReadCondition>> = {
  path: (cursor) => [{ kind: 'path', paths: cursor.several('a path').map(pathPattern(cursor)) }],
  path_regexp: (cursor) => {
    const words = cursor.several('a regular expression');
    return [marked(cursor, words, { kind: 'path_regexp', ...nameAndPattern(cursor, words) })];
  },
  host: (cursor) => [
    { kind: 'host', hosts: cursor.several('a host').map(({ text }) => text.toLowerCase()) },
  ],
  method: (cursor) => [
    { kind: 'method', methods: cursor.several('a method').map(({ text }) => text.toUpperCase()) },
  ],
  header: readHeader,
  header_regexp: (cursor) => {
    const words = cursor.several('a header field and a regular expression');
    const named = words.length > 2 ? words.slice(0, 1) : [];
    const [field, ...pattern] = words.slice(named.length);
    if (field === undefined || pattern.length === 0) {
      const message = 'header_regexp needs a field and a regular expression';
      return cursor.fail(cursor.span, 'expected-argument', message);
    }
    const header = headerName(cursor, field);
    const rest = nameAndPattern(cursor, [...named, ...pattern]);
    return [marked(cursor, words, { kind: 'header_regexp', ...rest, header })];
  },
  query: (cursor) =>
    cursor.several('key=value').map((word) => {
      const equals = word.text.indexOf('=');
      if (equals < 1) badValue(cursor, word, 'key=value, or key=* for any value');
      return {
        kind: 'query',
        name: word.text.slice(0, equals),
        values: [word.text.slice(equals + 1)],
      };
    }),
  protocol: (cursor) => {
    const choices = ['http', 'https', 'grpc', 'http/1.0', 'http/1.1', 'http/2', 'http/2+'];
    const word = cursor.argument('a protocol');
    return [{ kind: 'protocol', protocol: choiceOf(cursor, word, choices) }];
  },
  remote_ip: (cursor) => [{ kind: 'remote_ip', ranges: ofPeer(cursor) }],
  client_ip: (cursor) => [{ kind: 'client_ip', ranges: ranges(cursor) }],
  not: (cursor, nested) => [{ kind: 'not', matchers: [nested(cursor)] }],
};

/** Caddy once took a client's own word for its address here. */
function ofPeer(cursor: Cursor): readonly string[] {
  const word = cursor.peek();
  if (word?.text === 'forwarded') {
    const message = 'remote_ip is the address of the connection; forwarded is not supported';
    const hint =
      'write client_ip <ranges…>, and servers { trusted_proxies … } in the global options';
    cursor.fail(word.span, 'unsupported-option', message, hint);
  }
  return ranges(cursor);
}

const UNSUPPORTED: Readonly<Record<string, string>> = {
  expression: 'combine path, method, header, query and not instead',
  file: 'match by path instead',
  vars: 'match by path, header or query instead',
  vars_regexp: 'match by path_regexp or header_regexp instead',
  tls: 'use protocol https instead',
};

/** One condition of a matcher; what it says twice in one line counts as "any of". */
export function conditionOf(
  cursor: Cursor,
  nested: (cursor: Cursor) => RequestMatcher,
): MatchCondition[] {
  const read = Object.hasOwn(CONDITIONS, cursor.name) ? CONDITIONS[cursor.name] : undefined;
  if (read !== undefined) return read(cursor, nested);
  if (Object.hasOwn(UNSUPPORTED, cursor.name)) {
    const message = `the condition ${cursor.name} is not supported by hubgate`;
    return cursor.fail(cursor.span, 'unsupported-matcher', message, UNSUPPORTED[cursor.name]);
  }
  const near = nearestName(cursor.name, Object.keys(CONDITIONS));
  const hint =
    near === undefined
      ? `known are ${Object.keys(CONDITIONS).join(', ')}`
      : `did you mean \`${near}\`?`;
  return cursor.fail(cursor.span, 'unknown-condition', `unknown condition "${cursor.name}"`, hint);
}

/** Conditions of one kind (and field) that are given several times are one: any of their values. */
export function mergeConditions(conditions: readonly MatchCondition[]): MatchCondition[] {
  const merged: MatchCondition[] = [];
  for (const condition of conditions) {
    const index = merged.findIndex((known) => mergeTwo(known, condition) !== null);
    const known = merged[index];
    const both = known === undefined ? null : mergeTwo(known, condition);
    if (both === null) merged.push(condition);
    else merged[index] = both;
  }
  return merged;
}

function mergeTwo(a: MatchCondition, b: MatchCondition): MatchCondition | null {
  if (a.kind === 'path' && b.kind === 'path') return { ...a, paths: [...a.paths, ...b.paths] };
  if (a.kind === 'host' && b.kind === 'host') return { ...a, hosts: [...a.hosts, ...b.hosts] };
  if (a.kind === 'method' && b.kind === 'method') {
    return { ...a, methods: [...a.methods, ...b.methods] };
  }
  if (a.kind === 'remote_ip' && b.kind === 'remote_ip') {
    return { ...a, ranges: [...a.ranges, ...b.ranges] };
  }
  if (a.kind === 'client_ip' && b.kind === 'client_ip') {
    return { ...a, ranges: [...a.ranges, ...b.ranges] };
  }
  if (a.kind === 'query' && b.kind === 'query' && a.name === b.name) {
    return { ...a, values: [...a.values, ...b.values] };
  }
  if (a.kind === 'header' && b.kind === 'header' && a.name.toLowerCase() === b.name.toLowerCase()) {
    // One of them asks for presence only: with "any of", that is the weaker condition.
    const anyValue = a.values.length === 0 || b.values.length === 0;
    return { ...a, values: anyValue ? [] : [...a.values, ...b.values] };
  }
  return null;
}

function readHeader(cursor: Cursor): MatchCondition[] {
  const field = cursor.argument('a header field');
  if (!field.text.startsWith('!')) {
    const value = cursor.optional();
    const values = value === undefined ? [] : [value.text];
    return [{ kind: 'header', name: headerName(cursor, field), values }];
  }
  const name = headerName(cursor, field, field.text.slice(1));
  return [{ kind: 'not', matchers: [[{ kind: 'header', name, values: [] }]] }];
}

function pathPattern(cursor: Cursor): (word: Parameters<typeof badValue>[1]) => string {
  return (word) =>
    /^[/*]|^\{/.test(word.text)
      ? word.text
      : badValue(cursor, word, 'a path that begins with / or *');
}

function nameAndPattern(
  cursor: Cursor,
  words: readonly Word[],
): { name: string | null; pattern: string } {
  if (words.length > 2) {
    cursor.fail(
      cursor.span,
      'unexpected-argument',
      `${cursor.name} takes a name and one regular expression`,
    );
  }
  const pattern = words.at(-1)?.text ?? '';
  return { name: words.length === 2 ? (words[0]?.text ?? null) : null, pattern };
}

/** The regular expression is the last word. */
function marked(cursor: Cursor, words: readonly Word[], condition: MatchCondition): MatchCondition {
  const place = words.at(-1)?.span ?? cursor.span;
  cursor.origins.mark(condition, cursor.span, new Map([['pattern', place]]));
  return condition;
}

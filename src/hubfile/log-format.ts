import type { LogOptions } from '../config/config.ts';
import {
  defaultLogEncoding,
  defaultLogMembers,
  DURATION_FORMATS,
  isLogMember,
  LEVEL_FORMATS,
  type LogChange,
  type LogEncoding,
  type LogFilter,
  type LogMembers,
  MAX_LOG_FILTERS,
  type PairFilter,
  TIME_FORMATS,
} from '../config/log-encoding.ts';
import type { Cursor } from './cursor.ts';
import type { Word } from './parser.ts';
import { choiceOf, count, name, oneOf, text, matching } from './values.ts';

const MEMBERS = `message_key <name>
            level_key <name>
            time_key <name>
            name_key <name>
            level_format lower|upper
            time_format <format>
            duration_format seconds|ms|nano|string`;

/** The option `format`, for the documents and the editor. */
export const FORMAT_USAGE = `format console
        format json|caddy {
            ${MEMBERS}
        }
        format filter {
            wrap console
            wrap json|caddy {
                ${MEMBERS}
            }
            wrap append { <field> <value>; wrap <format>; fields { <field> <value> } }
            fields { <field> <filter> }
            <field> delete
            <field> rename <name>
            <field> replace <value>
            <field> hash
            <field> ip_mask <bits of IPv4> [<bits of IPv6>]
            <field> regexp <pattern> <replacement>
            <field> multi_regexp { regexp <pattern> <replacement> }
            <field> query|cookie { delete <name>; replace <name> <value>; hash <name> }
        }
        format append {
            wrap console|json|caddy
            <field> <value>
        }`;

/** How the lines of a log look. */
type Format = Pick<LogOptions, 'format' | 'encoding'>;

/** Encoders of Caddy, and of a well-known plug-in, that hubgate does not have. */
const OTHER_FORMATS: Readonly<Record<string, string>> = {
  formatted: 'use format caddy, and let a program format the lines',
  journald: 'use format json: the journal keeps the level of each line as part of its text',
  logfmt: 'use format json or format caddy',
  single_field: 'use format json or format caddy',
  transform: 'use format caddy, and let a program format the lines',
};

/** The format of a log, with the options of its block. */
export function logFormat(cursor: Cursor): Format {
  const word = cursor.argument('a format such as json');
  if (Object.hasOwn(OTHER_FORMATS, word.text)) {
    return cursor.failUnsupported(word.span, `format ${word.text}`, OTHER_FORMATS[word.text]);
  }
  const format = choiceOf(cursor, word, ['console', 'json', 'caddy', 'filter', 'append']);
  if (format === 'filter') return filtered(cursor);
  if (format === 'append') return appended(cursor);
  if (format === 'console' && cursor.hasBlock) {
    const message = 'format console has no options';
    const hint = 'it is for people; write format json { … }';
    cursor.fail(cursor.span, 'unsupported-option', message, hint);
  }
  return { format, encoding: { ...defaultLogEncoding, members: members(cursor) } };
}

const UTC = 'leave it out: hubgate writes times in UTC';
const NO_CALLER = 'leave it out: lines have no place in the source and no stack';
const SHORT_DURATIONS: ReadonlyMap<string, string> = new Map([
  ['s', 'seconds'],
  ['second', 'seconds'],
  ['ns', 'nano'],
  ['nanos', 'nano'],
  ['milli', 'ms'],
  ['millis', 'ms'],
]);

function members(cursor: Cursor): LogMembers {
  return cursor.options<LogMembers>(
    defaultLogMembers,
    {
      message_key: (option) => ({ messageKey: member(option) }),
      level_key: (option) => ({ levelKey: member(option) }),
      time_key: (option) => ({ timeKey: member(option) }),
      name_key: (option) => ({ nameKey: member(option) }),
      level_format: (option) => ({ levelFormat: oneOf(option, LEVEL_FORMATS) }),
      time_format: (option) => ({ timeFormat: oneOf(option, TIME_FORMATS) }),
      duration_format: (option) => {
        const word = option.argument('a form of durations');
        const meant = SHORT_DURATIONS.get(word.text) ?? word.text;
        return { durationFormat: choiceOf(option, { ...word, text: meant }, DURATION_FORMATS) };
      },
    },
    {
      unsupported: {
        time_local: UTC,
        caller_key: NO_CALLER,
        stacktrace_key: NO_CALLER,
        line_ending: 'leave it out: each line ends with \\n',
      },
    },
  );
}

function member(option: Cursor): string {
  const expected = 'a name of letters, digits, _, -, @ and .';
  return matching(option, 'the name of a member', isLogMember, expected);
}

/** Names of Caddy's lines at the outermost level. */
const CADDY_FIELDS = [
  'request',
  'resp_headers',
  'status',
  'duration',
  'size',
  'user_id',
  'bytes_read',
];

/** `filter`: its fields have the names of the lines that it wraps; without `wrap`, those of Caddy. */
function filtered(cursor: Cursor): Format {
  const filters: LogFilter[] = [];
  const words: Word[] = [];
  const read = (option: Cursor): void => {
    const field = option.line.words[0];
    const found = filtersOf(option);
    if (field !== undefined) words.push(field);
    filters.push(...found);
  };
  const { format, encoding } = wrapping(cursor, read, 'caddy');
  if (filters.length > MAX_LOG_FILTERS) {
    cursor.fail(cursor.span, 'bad-value', `a log has at most ${MAX_LOG_FILTERS} filters`);
  }
  const stray = words.find(({ text: field }) => isOfCaddy(field));
  if (format !== 'caddy' && stray !== undefined) {
    const message = `${cursor.quote(stray)} is the name of a field in lines with Caddy's names`;
    const hint = `write wrap caddy for such lines; format ${format} has the names of OpenTelemetry, such as client.address`;
    cursor.fail(stray.span, 'bad-value', message, hint);
  }
  return { format, encoding: { ...encoding, filters: [...filters, ...encoding.filters] } };
}

function isOfCaddy(field: string): boolean {
  return field.includes('>') || CADDY_FIELDS.includes(field);
}

function appended(cursor: Cursor): Format {
  const fields: LogEncoding['append'][number][] = [];
  const read = (option: Cursor): void => {
    const field = option.name;
    if (!isLogMember(field)) {
      option.fail(option.span, 'bad-value', 'a field has a name of letters, digits, _, -, @ and .');
    }
    const word = option.argument(`a value for ${field}`);
    if (/(?<!\\)\{(?!env\.|file\.|\$|system\.hostname\})[a-z]/.test(word.text)) {
      const hint = 'use log_append in the site for values of a request';
      const message = `${cursor.name} takes a fixed value, not ${option.quote(word)}`;
      option.fail(word.span, 'bad-value', message, hint);
    }
    fields.push({ field, value: word.text });
  };
  const { format, encoding } = wrapping(cursor, read, 'json');
  if (fields.length > MAX_LOG_FILTERS) {
    cursor.fail(cursor.span, 'bad-value', `a log appends at most ${MAX_LOG_FILTERS} fields`);
  }
  return { format, encoding: { ...encoding, append: [...encoding.append, ...fields] } };
}

/** `wrap <format>`, and lines that begin with the name of a field, in the block or in `fields { … }`. */
function wrapping(cursor: Cursor, read: (option: Cursor) => void, usual: 'caddy' | 'json'): Format {
  const start: Format = { format: usual, encoding: defaultLogEncoding };
  const other = (option: Cursor): boolean => {
    if (option.name === 'wrap' || option.name === 'fields') return false;
    read(option);
    option.end();
    return true;
  };
  return cursor.options<Format>(
    start,
    {
      wrap: (option) => logFormat(option),
      fields: (option) => {
        option.options({}, {}, { other });
        return {};
      },
    },
    { other },
  );
}

function filtersOf(option: Cursor): readonly LogFilter[] {
  const field = option.name;
  const kinds = [
    'delete',
    'rename',
    'replace',
    'ip_mask',
    'regexp',
    'multi_regexp',
    'hash',
    'query',
    'cookie',
  ] as const;
  const kind = oneOf(option, kinds);
  if (kind === 'multi_regexp') return severalPatterns(option);
  return [of(option, field, changeOf(option, kind))];
}

function of(option: Cursor, field: string, change: LogChange): LogFilter {
  return { field, change: option.origins.of(option.span, change) };
}

function changeOf(option: Cursor, kind: LogChange['kind']): LogChange {
  switch (kind) {
    case 'delete':
    case 'hash':
      return { kind };
    case 'rename':
      return { kind, name: name(option, 'the name of a field') };
    case 'replace':
      return { kind, value: text(option, 'a value') };
    case 'ip_mask':
      return ipMask(option);
    case 'regexp':
      return pattern(option);
    default:
      return { kind, pairs: pairs(option) };
  }
}

function pattern(option: Cursor): LogChange {
  const source = name(option, 'a regular expression');
  return { kind: 'regexp', pattern: source, replacement: text(option, 'a replacement') };
}

function severalPatterns(outer: Cursor): readonly LogFilter[] {
  outer.block();
  const found: LogFilter[] = [];
  outer.options(
    {},
    {
      regexp: (option) => {
        found.push(of(option, outer.name, pattern(option)));
        return {};
      },
    },
    { repeatable: ['regexp'] },
  );
  return found;
}

/** `ip_mask [<bits of IPv4> [<bits of IPv6>]]`, or both in a block. */
function ipMask(option: Cursor): LogChange {
  const bits = (cursor: Cursor, max: number): number => count(cursor, { max });
  const ipv4 = option.left > 0 ? bits(option, 32) : null;
  const ipv6 = option.left > 0 ? bits(option, 128) : null;
  const masks = option.options<{ ipv4: number | null; ipv6: number | null }>(
    { ipv4, ipv6 },
    {
      ipv4: (line) => ({ ipv4: bits(line, 32) }),
      ipv6: (line) => ({ ipv6: bits(line, 128) }),
    },
  );
  if (masks.ipv4 === null && masks.ipv6 === null) {
    const message = 'ip_mask needs the number of bits that are kept';
    option.fail(option.span, 'missing-option', message, 'write ip_mask 16 32');
  }
  return { kind: 'ip_mask', ...masks };
}

function pairs(option: Cursor): readonly PairFilter[] {
  option.block();
  const found: PairFilter[] = [];
  const add = (pair: PairFilter): Record<string, never> => {
    found.push(pair);
    return {};
  };
  const called = 'a name';
  option.options(
    {},
    {
      delete: (line) => add({ kind: 'delete', name: name(line, called) }),
      hash: (line) => add({ kind: 'hash', name: name(line, called) }),
      replace: (line) =>
        add({ kind: 'replace', name: name(line, called), value: text(line, 'a value') }),
    },
    { repeatable: ['delete', 'hash', 'replace'] },
  );
  if (found.length === 0 || found.length > MAX_LOG_FILTERS) {
    const expected = `1 to ${MAX_LOG_FILTERS} of delete, hash and replace`;
    option.fail(option.span, 'missing-option', `${option.name} needs ${expected}`);
  }
  return found;
}

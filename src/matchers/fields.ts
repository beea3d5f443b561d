import type { MatchCondition } from '../config/routes.ts';
import { list, object, type Of, optional, withDefault } from '../config/shape.ts';
import { headerName as headerNameShape } from '../config/shape-options.ts';
import { name as nameShape, text } from '../config/shape-values.ts';
import { fieldText } from '../http/header-list.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { headerName } from '../hubfile/values.ts';
import { likeAtEdges } from '../kernel/glob.ts';
import { capturing, filledIn, likePath } from '../site/text-pattern.ts';
import { type Matcher, withRegexp } from './matcher.ts';

const headerMembers = {
  name: headerNameShape,
  /** Without values, the field must be present. A value may begin or end with `*`. */
  values: withDefault(list(text('a value')), []),
};

export interface HeaderCondition extends Of<typeof headerMembers> {
  readonly kind: 'header';
}

export const header: Matcher<HeaderCondition> = {
  data: { shape: () => object(headerMembers) },
  syntax: {
    usage: 'header <field> [<value>]\nheader !<field>',
    summary: 'a field that has the value (with `*` at either end), is present, or is absent',
    read: readHeader,
    merge(a, b) {
      if (a.name.toLowerCase() !== b.name.toLowerCase()) return null;
      // One of them only requires presence, which is the weaker condition with "any of".
      const anyValue = a.values.length === 0 || b.values.length === 0;
      return { ...a, values: anyValue ? [] : [...a.values, ...b.values] };
    },
  },
  compile({ name, values }) {
    const isHost = name.toLowerCase() === 'host';
    const wanted = values.map((value) => filledIn(value, isHost ? likePath : likeAtEdges));
    if (isHost) {
      // Every request has a host.
      if (values.length === 0) return () => true;
      return (exchange) => wanted.some((like) => like(exchange)(exchange.host.toLowerCase()));
    }
    return (exchange) => {
      exchange.dependsOn?.({ field: name });
      if (values.length === 0) return exchange.headers.has(name);
      return exchange.headers
        .getAll(name)
        .some((value) => wanted.some((like) => like(exchange)(fieldText(value))));
    };
  },
};

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

const regexpMembers = {
  name: optional(nameShape('a name for the captured groups')),
  header: headerNameShape,
  pattern: text('a regular expression'),
};

export interface HeaderRegexpCondition extends Of<typeof regexpMembers> {
  readonly kind: 'header_regexp';
}

export const headerRegexp: Matcher<HeaderRegexpCondition> = {
  data: { shape: () => object(regexpMembers) },
  syntax: {
    usage: 'header_regexp [<name>] <field> <regexp>',
    summary:
      'fields that match; a value of more than 16 KiB, or one whose groups or replacements cost too much, gets a 431 (for all regular expressions)',
    read(cursor) {
      const words = cursor.several('a header field and a regular expression');
      const named = words.length > 2 ? words.slice(0, 1) : [];
      const [field, ...pattern] = words.slice(named.length);
      if (field === undefined || pattern.length === 0) {
        const message = 'header_regexp needs a field and a regular expression';
        return cursor.fail(cursor.span, 'expected-argument', message);
      }
      const header = headerName(cursor, field);
      return [withRegexp(cursor, 'header_regexp', [...named, ...pattern], { header })];
    },
  },
  compile({ name, header, pattern }) {
    const capture = capturing(pattern, name, true);
    return (exchange) => {
      exchange.dependsOn?.({ field: header });
      return exchange.headers.getAll(header).some((value) => capture(fieldText(value), exchange));
    };
  },
};

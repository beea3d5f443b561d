// What changes the lines of a log: names of members, forms of times, filters of fields. The reader of
// Hubfiles, YAML, JSON and the writer of the log share this description.

import { byKind, list, nullable, object } from './shape.ts';
import { count, name, oneOf, text } from './shape-values.ts';

/**
 * `auto`: console on a terminal, otherwise JSON. `json` names the fields as OpenTelemetry does, `caddy` as
 * Caddy does.
 */
export const LOG_FORMATS = ['auto', 'console', 'json', 'caddy'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

export const TIME_FORMATS = [
  'unix_seconds_float',
  'unix_milli_float',
  'unix_nano',
  'iso8601',
  'rfc3339',
  'rfc3339_nano',
  'wall',
  'wall_milli',
  'wall_nano',
  'common_log',
] as const;
export type TimeFormat = (typeof TIME_FORMATS)[number];

export const DURATION_FORMATS = ['seconds', 'ms', 'nano', 'string'] as const;
export type DurationFormat = (typeof DURATION_FORMATS)[number];

export const LEVEL_FORMATS = ['lower', 'upper'] as const;

/** Names and forms of the members that each JSON line has; null: those of the format. */
export interface LogMembers {
  readonly messageKey: string | null;
  readonly levelKey: string | null;
  readonly timeKey: string | null;
  /** Of the name of the log, which lines in Caddy's format have. */
  readonly nameKey: string | null;
  readonly levelFormat: (typeof LEVEL_FORMATS)[number];
  readonly timeFormat: TimeFormat | null;
  readonly durationFormat: DurationFormat;
}

/** What happens to a parameter of a query, or to a cookie. */
export type PairFilter =
  | { readonly kind: 'delete'; readonly name: string }
  | { readonly kind: 'hash'; readonly name: string }
  | { readonly kind: 'replace'; readonly name: string; readonly value: string };

/** What happens to a value. */
export type LogChange =
  | { readonly kind: 'delete' }
  | { readonly kind: 'hash' }
  | { readonly kind: 'rename'; readonly name: string }
  | { readonly kind: 'replace'; readonly value: string }
  /** The number of bits that are kept; null: addresses of this version stay. */
  | { readonly kind: 'ip_mask'; readonly ipv4: number | null; readonly ipv6: number | null }
  | { readonly kind: 'regexp'; readonly pattern: string; readonly replacement: string }
  | { readonly kind: 'query'; readonly pairs: readonly PairFilter[] }
  | { readonly kind: 'cookie'; readonly pairs: readonly PairFilter[] };

export interface LogFilter {
  /** The name of a field; `>` leads into an object: `request>headers>User-Agent`. */
  readonly field: string;
  readonly change: LogChange;
}

/** A field that every line gets. */
interface AppendedField {
  readonly field: string;
  readonly value: string;
}

export interface LogEncoding {
  readonly members: LogMembers;
  readonly filters: readonly LogFilter[];
  readonly append: readonly AppendedField[];
}

export const defaultLogMembers: LogMembers = {
  messageKey: null,
  levelKey: null,
  timeKey: null,
  nameKey: null,
  levelFormat: 'lower',
  timeFormat: null,
  durationFormat: 'seconds',
};

export const defaultLogEncoding: LogEncoding = {
  members: defaultLogMembers,
  filters: [],
  append: [],
};

/** Most filters of a log, and most fields that it appends. Each costs time for every line. */
export const MAX_LOG_FILTERS = 100;

/** A member's name must not be confused with the members of other fields. */
export function isLogMember(text: string): boolean {
  return /^[\w@.-]{1,100}$/.test(text);
}

const member = nullable(text('a name of letters, digits, _, -, @ and .', isLogMember));

const pairs = list(
  byKind<PairFilter>({
    delete: object({ name: name('a name') }),
    hash: object({ name: name('a name') }),
    replace: object({ name: name('a name'), value: text('a value') }),
  }),
  { min: 1 },
);

export const logEncodingShape = object<LogEncoding>(
  {
    members: object<LogMembers>(
      {
        messageKey: member,
        levelKey: member,
        timeKey: member,
        nameKey: member,
        levelFormat: oneOf(...LEVEL_FORMATS),
        timeFormat: nullable(oneOf(...TIME_FORMATS)),
        durationFormat: oneOf(...DURATION_FORMATS),
      },
      defaultLogMembers,
    ),
    filters: list(
      object<LogFilter>({
        field: name('the name of a field'),
        change: byKind<LogChange>({
          delete: object({}),
          hash: object({}),
          rename: object({ name: name('the name of a field') }),
          replace: object({ value: text('a value') }),
          ip_mask: object(
            {
              ipv4: nullable(count({ max: 32 })),
              ipv6: nullable(count({ max: 128 })),
            },
            { ipv4: null, ipv6: null },
          ),
          regexp: object({
            pattern: name('a regular expression'),
            replacement: text('a replacement'),
          }),
          query: object({ pairs }),
          cookie: object({ pairs }),
        }),
      }),
    ),
    append: list(
      object<AppendedField>({ field: name('the name of a field'), value: text('a value') }),
    ),
  },
  defaultLogEncoding,
);

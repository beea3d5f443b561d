import type { HeaderOperation } from '../config/routes.ts';
import type { ResponseMatcher } from '../config/shape-routes.ts';
import { statusMatcher } from '../config/well-formed.ts';
import type { ResponseHead } from './exchange.ts';
import { compilePattern, compileWildcard, matchable } from './linear-regexp.ts';
import { fieldText, type HeaderList, utf8Field } from './header-list.ts';
import { withoutOuterBlanks } from './http1-syntax.ts';
import { changedLocation, sameSiteLocation } from './same-site.ts';

/** Whose fields are changed. */
type Side = 'request' | 'response';

/** Replaces the placeholders in the value of a field. */
type ExpandValue = (template: string, name: string) => string;

/** Changes the fields of one message. */
export type ApplyOperations = (headers: HeaderList, expand: ExpandValue) => void;

/** The gateway frames messages itself. A configured length would desynchronise the connection. */
const FRAMING = new Set([
  'connection',
  'content-length',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

// The gateway would refuse to send these bytes; a placeholder may bring them in.
// oxlint-disable-next-line no-control-regex
const FORBIDDEN_BYTES = /[\0-\x08\x0a-\x1f\x7f]/g;

/** As Caddy applies the lines of one block, whatever their order in it. */
const ORDER: Readonly<Record<HeaderOperation['kind'], number>> = {
  add: 1,
  set: 2,
  delete: 3,
  replace: 4,
  default: 5,
};

function rank(operation: HeaderOperation): number {
  return operation.kind === 'delete' && operation.name === '*' ? 0 : ORDER[operation.kind];
}

/**
 * The lines of a `header`, `request_header`, `header_up` or `header_down` block: first `-*`, then what
 * is added, set, deleted, replaced and set by default. Operations on fields that frame the message do
 * nothing.
 *
 * @throws HubgateError `invalid-pattern`; the function throws an HttpError for a value that costs a regular expression
 *   too much: 431 in a request, 502 in a response
 */
export function compileOperations(
  operations: readonly HeaderOperation[],
  side: Side = 'response',
): ApplyOperations {
  const steps = operations
    .filter((one) => !FRAMING.has(one.name.toLowerCase()))
    .toSorted((a, b) => rank(a) - rank(b))
    .map((one) => compileOne(one, side));
  return (headers, expand) => {
    for (const step of steps) step(headers, expand);
  };
}

function compileOne(operation: HeaderOperation, side: Side): ApplyOperations {
  const { name } = operation;
  const isLocation = name.toLowerCase() === 'location';
  const filledIn = (template: string, expand: ExpandValue): string => {
    const value = expand(template, name);
    return fieldValue(isLocation ? sameSiteLocation(template, value) : value);
  };
  switch (operation.kind) {
    case 'set':
      return (headers, expand) => headers.set(name, filledIn(operation.value, expand));
    case 'add':
      return (headers, expand) => headers.append(name, filledIn(operation.value, expand));
    case 'default':
      return (headers, expand) => {
        if (!headers.has(name)) headers.append(name, filledIn(operation.value, expand));
      };
    case 'delete':
      return deletion(name.toLowerCase());
    case 'replace': {
      const ofRequest = side === 'request';
      const pattern = compilePattern(operation.pattern);
      const replace = pattern.replacer(operation.replacement, ofRequest ? 431 : 502);
      const wanted = compileWildcard(name.toLowerCase(), 'edges');
      return (headers, expand) => {
        headers.mapValues((key, value) => {
          if (!wanted(key)) return value;
          const filled = (template: string): string => expand(template, key);
          const text = fieldText(value);
          const changed = replace(ofRequest ? matchable(text) : text, filled);
          return fieldValue(key === 'location' ? changedLocation(value, changed) : changed);
        });
      };
    }
  }
}

/** Calls `note` for each of these fields that an operation of this kind concerns, in lower case. */
export function noteConcerned(
  operations: readonly HeaderOperation[],
  kinds: readonly HeaderOperation['kind'][],
): (fields: HeaderList, note: (key: string) => void) => void {
  const wanted = operations
    .filter(({ kind }) => kinds.includes(kind))
    .map(({ name }) => compileWildcard(name.toLowerCase(), 'edges'));
  return (fields, note) => {
    if (wanted.length === 0) return;
    fields.forEach((key) => {
      if (wanted.some((concerns) => concerns(key))) note(key);
    });
  };
}

function deletion(name: string): ApplyOperations {
  if (!name.includes('*')) return (headers) => headers.delete(name);
  const wanted = compileWildcard(name, 'edges');
  return (headers) => headers.deleteWhere((key) => wanted(key) && !FRAMING.has(key));
}

/**
 * Converts any text to a field value that can be sent. Over HTTP/2, blanks at its ends would make the message
 * malformed (RFC 9113 §8.2.1), and clients would drop the field.
 */
export function fieldValue(text: string): string {
  return withoutOuterBlanks(utf8Field(text).replace(FORBIDDEN_BYTES, ' '));
}

/** Fields that a message has only once. With two of them, clients use the first one or none. */
export const SINGLE: ReadonlySet<string> = new Set([
  'content-length',
  'content-location',
  'content-range',
  'content-type',
  'date',
  'etag',
  'last-modified',
  'location',
  'retry-after',
]);

/** Fields that describe one particular body. */
export const OF_THE_BODY: ReadonlySet<string> = new Set([
  'accept-ranges',
  'content-encoding',
  'content-length',
  'content-range',
  'etag',
  'last-modified',
  'trailer',
  'transfer-encoding',
]);

/** Of preset fields that come from another response: the values that yield, by the lower-case name. */
const yielding = new WeakMap<HeaderList, Map<string, string>>();

/**
 * Says that preset fields come from a response that is replaced. Of those that a message has only once, the
 * replacing response keeps its own, unless a handler sets another value.
 */
export function yieldSingle(preset: HeaderList, names: Iterable<string>): void {
  const values = yielding.get(preset) ?? new Map<string, string>();
  for (const name of names) {
    const key = name.toLowerCase();
    const value = SINGLE.has(key) ? preset.combined(key) : undefined;
    if (value !== undefined) values.set(key, value);
  }
  if (values.size > 0) yielding.set(preset, values);
}

function yields(preset: HeaderList, key: string): boolean {
  const value = yielding.get(preset)?.get(key);
  return value !== undefined && value === preset.combined(key);
}

/** Marks the fields of a copy as those of the original. */
export function copyYielding(from: HeaderList, to: HeaderList): void {
  const values = yielding.get(from);
  if (values !== undefined) yielding.set(to, values);
}

/**
 * Adds the preset fields of an exchange in front of the fields of its response. Fields of hubgate's own
 * responses replace preset fields with the same name; fields of the app stand beside them. Of a field that a
 * message has only once, the preset one stays, unless it yields.
 */
export function withPreset({ headers, isBesidePreset }: ResponseHead, preset: HeaderList): void {
  if (preset.isEmpty) return;
  const own = headers.clone();
  headers.deleteWhere(() => true);
  for (const [name, value] of preset) {
    const key = name.toLowerCase();
    const isKept = isBesidePreset === true && !yields(preset, key);
    if (isKept || key === 'vary' || !own.has(key)) headers.append(name, value);
  }
  for (const [name, value] of own) {
    const key = name.toLowerCase();
    if (isBesidePreset !== true || !staysAlone(preset, key)) headers.append(name, value);
  }
}

/** Whether a preset field keeps the one of the app with the same name out. */
export function staysAlone(preset: HeaderList, key: string): boolean {
  return SINGLE.has(key) && preset.has(key) && !yields(preset, key);
}

/** Whether a response has the status and the fields that a matcher of responses names. */
export function compileResponseMatcher({
  status,
  headers,
}: ResponseMatcher): (status: number, fields: HeaderList) => boolean {
  const hasStatus = statusMatcher(status);
  const names = [...new Set(headers.map(({ name }) => name.toLowerCase()))];
  const fields = names.map((name) => {
    const values = headers
      .filter((one) => one.name.toLowerCase() === name)
      .map(({ value }) => compileWildcard(value, 'edges'));
    return { name, matches: (value: string) => values.some((matches) => matches(value)) };
  });
  return (answered, list) =>
    hasStatus(answered) && fields.every(({ name, matches }) => list.getAll(name).some(matches));
}

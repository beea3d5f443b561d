// The target of a request is made canonical once, on arrival, and again only by a rewrite.
// Matchers, hub, rewrites, files, logs and upstreams all read that form, and nothing behind cleans
// a path again.

import { HttpError } from './errors.ts';

/**
 * The one spelling of a request target. It is made when a request arrives and when something rewrites
 * it, so that matchers, the hub, files, the log and upstreams all read the same path:
 *
 * - Escapes of letters, digits and `-._~` are decoded (RFC 3986 §6.2.2.2). Others stay as they are: to topics
 *   `%3a` is not `%3A`.
 * - Dot segments are removed (§5.2.4), whatever their spelling.
 * - Whatever may not stand in a path (§3.3) is percent-encoded, `\` among it.
 *
 * The query stays as it is.
 */

/** What a path may hold as it is: pchar of RFC 3986 §3.3, and the slash. */
const PLAIN = /^[\w.~!$&'()*+,;=:@/-]*$/;
/** A segment that is `.` or `..`, with path parameters or without. */
const HAS_DOTS = /\/\.{1,2}(?:[/;]|$)/;
/** An escape, a percent sign that begins none, or a character that may not stand in a path. */
const ODD = /%(?:([0-9A-Fa-f]{2})|)|[^\w.~!$&'()*+,;=:@/%-]/gu;
const UNRESERVED = /[\w.~-]/;
/** A slash or backslash that is escaped: some readers take it for the end of a segment, some do not. */
const ESCAPED_SLASH = /%2F|%5C/i;
/** What may not stand in a query that a placeholder has filled in: no request line has it (RFC 9112 §3.2). */
const NOT_IN_QUERY = /[^!-~]|#/gu;

/**
 * The canonical form of a target that a client has sent; null where two readers may read its path
 * in two ways: `%zz`, `%00`, `..%2F`, `..;x`. `*` is its own form.
 */
export function canonicalTarget(target: string): string | null {
  if (target === '*') return target;
  return withPath(target, (path) => canonicalPath(path, null));
}

/**
 * The canonical form of a target that a configuration has made, with what placeholders brought in: a
 * percent sign that begins no escape is one that stands for itself.
 *
 * @throws HttpError 400 where two readers may read its path in two ways
 */
export function canonicalRewrite(target: string): string {
  const rooted = target.startsWith('/') ? target : `/${target}`;
  const canonical = withPath(rooted, (path) => canonicalPath(path, '%25'));
  if (canonical === null) throw new HttpError(400, 'the rewritten path is ambiguous');
  const mark = canonical.indexOf('?');
  if (mark === -1) return canonical;
  return canonical.slice(0, mark) + canonical.slice(mark).replace(NOT_IN_QUERY, percentEncoded);
}

function withPath(target: string, change: (path: string) => string | null): string | null {
  const mark = target.indexOf('?');
  if (mark === -1) return change(target);
  const path = change(target.slice(0, mark));
  return path === null ? null : path + target.slice(mark);
}

/** @param percent what stands for a percent sign that begins no escape; null: nothing does */
function canonicalPath(path: string, percent: string | null): string | null {
  const encoded = PLAIN.test(path) ? path : encodedPath(path, percent);
  if (encoded === null) return null;
  return HAS_DOTS.test(encoded) || ESCAPED_SLASH.test(encoded)
    ? withoutDotSegments(encoded)
    : encoded;
}

function encodedPath(path: string, percent: string | null): string | null {
  let isGood = true;
  const encoded = path.replace(ODD, (found: string, digits: string | undefined) => {
    if (digits === '00') isGood = false;
    if (digits !== undefined) return canonicalEscape(digits);
    if (found !== '%') return percentEncoded(found);
    if (percent === null) isGood = false;
    return percent ?? '';
  });
  return isGood ? encoded : null;
}

function canonicalEscape(digits: string): string {
  const letter = String.fromCharCode(Number.parseInt(digits, 16));
  return UNRESERVED.test(letter) ? letter : `%${digits}`;
}

function percentEncoded(letter: string): string {
  return Buffer.from(letter, 'utf8').toString('hex').toUpperCase().replace(/../g, '%$&');
}

/**
 * RFC 3986 §5.2.4; null where some reader sees a dot segment that others do not see. A final `/.` goes
 * with its slash, unlike there: to whoever cleans paths `/metrics/.` is `/metrics`.
 */
function withoutDotSegments(path: string): string | null {
  const segments = path.slice(1).split('/');
  const kept: string[] = [];
  for (const [index, segment] of segments.entries()) {
    if (segment === '.') continue;
    if (segment !== '..') {
      if (hidesDots(segment)) return null;
      kept.push(segment);
      continue;
    }
    kept.pop();
    if (index === segments.length - 1) kept.push('');
  }
  return `/${kept.join('/')}`;
}

/** `..%2Fx` is a way up to whoever decodes first, `..;x` to whoever knows path parameters. */
function hidesDots(segment: string): boolean {
  return segment.split(ESCAPED_SLASH).some((part) => /^\.{1,2}(?:;|$)/.test(part));
}

// The target of a request is made canonical once, on arrival, and again only by a rewrite. Matchers, hub,
// rewrites, files, logs and upstreams all read that form. No later code normalizes a path.

import { HttpError } from './errors.ts';

/**
 * Returns the canonical form of a request target. It is computed when a request arrives and when a rewrite
 * changes it, so that matchers, the hub, files, the log and upstreams all read the same path:
 *
 * - Escapes of letters, digits and `-._~` are decoded (RFC 3986 §6.2.2.2). Others stay as they are: for
 *   topics, `%3a` differs from `%3A`.
 * - Dot segments are removed (§5.2.4), however they are spelled.
 * - Characters that are not allowed in a path (§3.3) are percent-encoded, including `\`.
 *
 * The query stays as it is.
 */

/** Characters that a path may contain literally: pchar of RFC 3986 §3.3, and the slash. */
const PLAIN = /^[\w.~!$&'()*+,;=:@/-]*$/;
/** A segment that is `.` or `..`, with or without path parameters. */
const HAS_DOTS = /\/\.{1,2}(?:[/;]|$)/;
/** An escape, a percent sign that begins none, or a character that is not allowed in a path. */
const ODD = /%(?:([0-9A-Fa-f]{2})|)|[^\w.~!$&'()*+,;=:@/%-]/gu;
const UNRESERVED = /[\w.~-]/;
/** An escaped slash or backslash. Some readers treat it as the end of a segment, others do not. */
const ESCAPED_SLASH = /%2F|%5C/i;
/**
 * Characters that a request line cannot contain (RFC 9112 §3.2), in a query that a placeholder has filled in.
 */
const NOT_IN_QUERY = /[^!-~]|#/gu;

/**
 * The canonical form of a target that a client has sent; null if two readers could read its path differently:
 * `%zz`, `%00`, `..%2F`, `..;x`. `*` is its own canonical form.
 */
export function canonicalTarget(target: string): string | null {
  if (target === '*') return target;
  return withPath(target, sentPath);
}

/**
 * The canonical form of a target from the configuration, with its placeholders replaced. A percent sign that
 * begins no escape stands for itself.
 *
 * @throws HttpError 400 if two readers could read its path differently
 */
export function canonicalRewrite(target: string): string {
  const rooted = target.startsWith('/') ? target : `/${target}`;
  const canonical = withPath(rooted, (path) => canonicalPath(path, '%25'));
  if (canonical === null) throw new HttpError(400, 'the rewritten path is ambiguous');
  const mark = canonical.indexOf('?');
  if (mark === -1) return canonical;
  return canonical.slice(0, mark) + canonical.slice(mark).replace(NOT_IN_QUERY, percentEncoded);
}

function sentPath(path: string): string | null {
  return canonicalPath(path, null);
}

function withPath(target: string, change: (path: string) => string | null): string | null {
  const mark = target.indexOf('?');
  if (mark === -1) return change(target);
  const path = change(target.slice(0, mark));
  return path === null ? null : path + target.slice(mark);
}

/** @param percent replaces a percent sign that begins no escape; null if such a sign is not allowed */
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
    if (digits === '00' || found === '\0') isGood = false;
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
 * RFC 3986 §5.2.4; null if only some readers see a dot segment. Unlike there, a final `/.` is removed
 * together with its slash: for code that cleans paths, `/metrics/.` is `/metrics`.
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

/**
 * For readers that decode first, `..%2Fx` leads to the parent; `..;x` does for readers that know path
 * parameters.
 */
function hidesDots(segment: string): boolean {
  return segment.split(ESCAPED_SLASH).some((part) => /^\.{1,2}(?:;|$)/.test(part));
}

/*
 * Determines the topic of a URL of the site. The gateway uses it when it announces a change, and the script
 * of live pages when it subscribes. So this module imports neither Node nor the browser.
 *
 * 1. A URL that matches an alias has the topic of the alias, including the parts of the query that the
 *    operator has written.
 * 2. Any other URL has itself without its query as topic, and eight bits of the query as a mark.
 *
 * The parameters of a path are left out like queries.
 */

/** The URL forms of a page; the first is its topic. Each may contain `{name}`. */
export interface PageAlias {
  readonly topic: string;
  readonly forms: readonly string[];
}

export interface PageTopic {
  readonly topic: string;
  /** Mark of the query, if it is not part of the topic; '' for none. */
  readonly mark: string;
}

/** Literal texts, and the names of the placeholders between them. */
interface Pattern {
  readonly literals: readonly string[];
  readonly names: readonly string[];
}

interface Form {
  readonly path: Pattern;
  readonly parameters: readonly (readonly [name: string, pattern: Pattern])[];
}

export type TopicOf = (url: URL) => PageTopic;

/** @param normalized returns the normal form of a URL (`href`), from the URL parser of the platform */
export function createTopicOf(
  aliases: readonly PageAlias[],
  normalized: (url: string) => string,
): TopicOf {
  const compiled = aliases.map(({ topic, forms }) => ({
    topic: patternOf(topic),
    forms: [topic, ...forms].map(formOf),
  }));
  return (url) => {
    const path = withoutParameters(url.pathname);
    for (const { topic, forms } of compiled) {
      for (const form of forms) {
        const values = fit(form, path, url.searchParams);
        if (values !== null)
          return { topic: normalized(url.origin + fill(topic, values)), mark: '' };
      }
    }
    return { topic: url.origin + path, mark: queryMark(url.search) };
  };
}

/**
 * A URL without the parameters of its path (RFC 3986 §3.3). Servers for Java put the visitor's session there,
 * as in `/cart;jsessionid=…`.
 */
export function withoutParameters(url: string): string {
  return url.replace(/^[^?#]*/, (path) => path.replace(/;[^/;=]*=[^/;]*/g, ''));
}

/**
 * Eight bits of a query. They tell a page `/index.php?title=A` that a change of `/index.php?title=B` is not
 * its own, and reveal nothing else about the query. One of 256 other changes causes an unnecessary fetch.
 */
export function queryMark(search: string): string {
  if (search.length < 2) return '';
  let hash = 0x811c9dc5;
  for (let at = 1; at < search.length; at += 1) {
    hash = Math.imul(hash ^ search.charCodeAt(at), 0x01000193);
  }
  return ((hash ^ (hash >>> 8) ^ (hash >>> 16) ^ (hash >>> 24)) & 0xff)
    .toString(16)
    .padStart(2, '0');
}

function formOf(text: string): Form {
  const [path = '', query = ''] = text.split('?', 2);
  const parameters = query.split('&').filter((parameter) => parameter !== '');
  return {
    path: patternOf(path),
    parameters: parameters.map((parameter) => {
      const [name = '', value = ''] = parameter.split('=', 2);
      return [name, patternOf(value)] as const;
    }),
  };
}

function patternOf(text: string): Pattern {
  const parts = text.split(/\{(\w+)\}/);
  return {
    literals: parts.filter((_, index) => index % 2 === 0),
    names: parts.filter((_, index) => index % 2 === 1),
  };
}

/** The values of the names in a form; null if the URL does not have this form. */
function fit(
  { path, parameters }: Form,
  pathname: string,
  query: URLSearchParams,
): Map<string, string> | null {
  const values = new Map<string, string>();
  if (!take(path, decoded(pathname), values)) return null;
  for (const [name, pattern] of parameters) {
    if (!take(pattern, query.get(name), values)) return null;
  }
  return values;
}

/**
 * Matches in linear time: each name takes the shortest text of at least one character, and the last one takes
 * the rest.
 */
function take(
  { literals, names }: Pattern,
  text: string | null,
  values: Map<string, string>,
): boolean {
  const [first = '', ...others] = literals;
  if (text === null || !text.startsWith(first)) return false;
  let at = first.length;
  for (const [index, literal] of others.entries()) {
    const isLast = index === others.length - 1;
    const end = isLast ? text.length - literal.length : text.indexOf(literal, at + 1);
    if (end <= at || (isLast && !text.endsWith(literal))) return false;
    values.set(names[index] ?? '', text.slice(at, end));
    at = end + literal.length;
  }
  return at === text.length;
}

/** Values are encoded in one way, however the URL had encoded them. */
function fill({ literals, names }: Pattern, values: ReadonlyMap<string, string>): string {
  return literals
    .map((literal, index) => literal + encoded(values.get(names[index] ?? '') ?? ''))
    .join('');
}

function encoded(value: string): string {
  return encodeURIComponent(value).replaceAll('%2F', '/').replaceAll('%3A', ':');
}

function decoded(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

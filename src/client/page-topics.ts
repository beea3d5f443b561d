/*
 * Which topic a URL of the site has. The gateway asks when it announces a change, and the script of
 * live pages asks when it subscribes. So this imports neither Node nor the browser.
 *
 * 1. A URL that fits an alias has the alias's topic, with what the operator has written of its query.
 * 2. Any other URL has itself without its query as topic, and eight bits of the query beside it.
 */

/** Ways in which one page is written; the first is its topic. Each may have `{name}` in it. */
export interface PageAlias {
  readonly topic: string;
  readonly forms: readonly string[];
}

export interface PageTopic {
  readonly topic: string;
  /** Of the query, where it is not part of the topic; '' for none. */
  readonly mark: string;
}

/** Literal texts, and between them the names of what may stand there. */
interface Pattern {
  readonly literals: readonly string[];
  readonly names: readonly string[];
}

interface Form {
  readonly path: Pattern;
  readonly parameters: readonly (readonly [name: string, pattern: Pattern])[];
}

export type TopicOf = (url: URL) => PageTopic;

/** @param normalized the normal form of a URL (`href`), by whatever parses URLs where this runs */
export function createTopicOf(
  aliases: readonly PageAlias[],
  normalized: (url: string) => string,
): TopicOf {
  const compiled = aliases.map(({ topic, forms }) => ({
    topic: patternOf(topic),
    forms: [topic, ...forms].map(formOf),
  }));
  return (url) => {
    for (const { topic, forms } of compiled) {
      for (const form of forms) {
        const values = fit(form, url);
        if (values !== null)
          return { topic: normalized(url.origin + fill(topic, values)), mark: '' };
      }
    }
    return { topic: `${url.origin}${url.pathname}`, mark: queryMark(url.search) };
  };
}

/**
 * Eight bits of a query. By them a page of `/index.php?title=A` knows that a change of `/index.php?title=B` is
 * not its own, and nobody learns more of a query than these eight bits. Of 256 other pages one asks in vain.
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

/** What stands at the names of a form; null for a URL that is not written so. */
function fit({ path, parameters }: Form, url: URL): Map<string, string> | null {
  const values = new Map<string, string>();
  if (!take(path, decoded(url.pathname), values)) return null;
  for (const [name, pattern] of parameters) {
    if (!take(pattern, url.searchParams.get(name), values)) return null;
  }
  return values;
}

/** In linear time: each name stands for the shortest text, at least a character, and the last for all that is left. */
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

/** Values are written in one way, however the URL had encoded them. */
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

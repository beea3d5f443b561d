// Topics and URL Patterns are resolved against one base, the pinned resource identifier or a host
// that cannot exist. The test for reserved topics uses the same base; otherwise subscription events
// could be forged.

import { parseUrl, requireUrl } from '../kernel/parse-url.ts';

/** Controls (C0, DEL, C1), format characters, and halves of surrogate pairs. */
const FORBIDDEN = /[\p{Cc}\p{Cf}\p{Cs}]/u;
const UNRESERVED_ESCAPE = /%(2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/gi;

/** Whether a topic, id, type or matcher contains a character that none of them may contain. */
export function hasForbiddenCharacters(text: string): boolean {
  return FORBIDDEN.test(text);
}

/**
 * The URL that relative topics and patterns resolve against, the same for both. Without a
 * configured identity it is on a host that cannot exist, so that relative and absolute topics never
 * meet.
 *
 * @param identity the hub's resource identifier, or null when each request brings its own
 * @param hubPath path of the hub
 */
export function hubBase(identity: string | null, hubPath: string): string {
  return requireUrl(hubPath, identity ?? 'https://hub.invalid').href;
}

/** What reading a topic as a URL costs, and each of its characters, in steps. */
const URL_STEPS = 300;
const CHARACTER_STEPS = 2;

/** A topic: a string that may also be read as a URL. */
export class Topic {
  readonly text: string;
  readonly #base: string;
  #url: UrlComponents | null | undefined;

  constructor(text: string, base: string) {
    this.text = text;
    this.#base = base;
  }

  /** What {@link url} will cost, in steps: nothing when it has been asked for before. */
  get urlSteps(): number {
    return this.#url === undefined ? URL_STEPS + CHARACTER_STEPS * this.text.length : 0;
  }

  /** The topic resolved against the hub's base, at the first use; null when that is not a URL. */
  get url(): UrlComponents | null {
    // null is an answer as well: it is not asked for again.
    if (this.#url === undefined) this.#url = parse(this.text, this.#base);
    return this.#url;
  }
}

/** @param base see {@link hubBase} */
export function parseTopic(text: string, base: string): Topic {
  return new Topic(text, base);
}

/**
 * Whether a topic lies in the hub's own namespace, on whatever host: there the hub alone publishes,
 * else subscription events could be forged.
 */
export function isReservedTopic(topic: Topic, hubPath: string): boolean {
  if (topic.url === null) return false;
  const path = decodeUnreserved(topic.url.pathname);
  const reserved = decodeUnreserved(hubPath);
  return path === reserved || path.startsWith(`${reserved}/`);
}

/** `%68` is `h` (RFC 3986 §2.3); `%2F` is not `/`. */
function decodeUnreserved(path: string): string {
  return path.replace(UNRESERVED_ESCAPE, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

function parse(text: string, base: string): UrlComponents | null {
  const url = parseUrl(text, base);
  return url === null ? null : componentsOf(url);
}

/** The eight strings that a URL Pattern looks at (URL Pattern §1.5), without their separators. */
export type UrlComponents = Readonly<Record<UrlComponentName, string>>;

export type UrlComponentName =
  | 'protocol'
  | 'username'
  | 'password'
  | 'hostname'
  | 'port'
  | 'pathname'
  | 'search'
  | 'hash';

export function componentsOf(url: URL): UrlComponents {
  return {
    protocol: url.protocol.slice(0, -1),
    username: url.username,
    password: url.password,
    hostname: url.hostname,
    port: url.port,
    pathname: url.pathname,
    search: url.search.slice(1),
    hash: url.hash.slice(1),
  };
}

/** What all URLs of one origin share, for an index: `https://example.com:` with the port if not default. */
export function originKey(url: Pick<UrlComponents, 'protocol' | 'hostname' | 'port'>): string {
  return `${url.protocol}://${url.hostname}:${url.port}`;
}

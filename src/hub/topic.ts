// Topics and URL Patterns are resolved against one base, the pinned resource identifier or a host
// that cannot exist. The test for reserved topics uses the same base; otherwise subscription events
// could be forged.

import { parseUrl, requireUrl } from '../kernel/parse.ts';

/** Controls (C0, DEL, C1), format characters, and halves of surrogate pairs. */
const FORBIDDEN = /[\p{Cc}\p{Cf}\p{Cs}]/u;
const UNRESERVED_ESCAPE = /%(2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/gi;

/** Whether a topic, id, type or matcher contains a forbidden character. */
export function hasForbiddenCharacters(text: string): boolean {
  return FORBIDDEN.test(text);
}

/**
 * The base URL of relative topics and patterns. Without a configured identity its host is one that cannot
 * exist, so relative and absolute topics never meet.
 *
 * @param identity resource identifier of the hub, or null if each request brings its own
 * @param hubPath path of the hub
 */
export function hubBase(identity: string | null, hubPath: string): string {
  return requireUrl(hubPath, identity ?? 'https://hub.invalid').href;
}

/** Cost of parsing a topic as a URL, and of each of its characters, in steps. */
const URL_STEPS = 300;
const CHARACTER_STEPS = 2;

/** A topic: a string that may also be a URL. */
export class Topic {
  readonly text: string;
  readonly #base: string;
  #url: UrlComponents | null | undefined;
  #origin: string | null = null;

  constructor(text: string, base: string) {
    this.text = text;
    this.#base = base;
  }

  /** Cost of {@link url} in steps; 0 if it has been parsed before. */
  get urlSteps(): number {
    return this.#url === undefined ? URL_STEPS + CHARACTER_STEPS * this.text.length : 0;
  }

  /** The topic resolved against the base of the hub, parsed at first use; null if it is not a URL. */
  get url(): UrlComponents | null {
    // null is a result as well, so it is not parsed again.
    if (this.#url === undefined) this.#url = parse(this.text, this.#base);
    return this.#url;
  }

  /** {@link originKey} of {@link url}; null if it is not a URL. */
  get origin(): string | null {
    const { url } = this;
    if (url !== null) this.#origin ??= originKey(url);
    return this.#origin;
  }
}

/** @param base see {@link hubBase} */
export function parseTopic(text: string, base: string): Topic {
  return new Topic(text, base);
}

/**
 * Whether a topic is in the hub's own namespace, on any host. Only the hub may publish there; otherwise
 * subscription events could be forged.
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

/** The eight components that a URL Pattern matches (URL Pattern §1.5), without their separators. */
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

/**
 * The common key of all URLs of one origin, for an index: `https://example.com:`, with the port unless it is
 * the default.
 */
export function originKey(url: Pick<UrlComponents, 'protocol' | 'hostname' | 'port'>): string {
  return `${url.protocol}://${url.hostname}:${url.port}`;
}

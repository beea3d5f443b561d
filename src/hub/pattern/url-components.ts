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

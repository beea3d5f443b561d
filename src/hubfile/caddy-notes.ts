// How hubgate's words of a Caddyfile differ from Caddy's. A script generates docs/from-caddy.md from this
// table, and the reader of a Caddyfile repeats the notes that its text touches. A word that is not here is the
// same, or is refused with the reader's hint.

interface Note {
  readonly text: string;
  /** What the line with its block must contain for the note to be repeated; null: it never is. */
  readonly repeated: RegExp | null;
}

/** Only for the page: a limit that the reader itself reports, or something that changes no response. */
function page(text: string): Note {
  return { text, repeated: null };
}

/** A difference that everyone meets who writes the word, or writes it in this way. */
function difference(text: string, repeated = /^/): Note {
  return { text, repeated };
}

/** Each word, by the title of its table: the directives and options around it. */
export const caddyNotes: Readonly<Record<string, Readonly<Record<string, Note>>>> = {
  'Global options': {
    order: page('the same; it takes the directives of hubgate'),
    storage: page('a directory, or file_system with its root'),
    admin: difference(
      "the default is localhost:2029 (Caddy: 2019), and 0600 for the file of a Unix socket (Caddy: 0200); fd/3 is not supported; the API is hubgate's own and does not edit the configuration",
      /^admin (?!off\b)/,
    ),
    persist_config: page('only off; hubgate keeps nothing except the file, so it has no --resume'),
    log: page('the same; include and exclude take only http.log.access and http.log.access.NAME'),
    grace_period: page('the default is 30s (Caddy: none)'),
    metrics: difference('the address at which hubgate serves metrics, which it always counts'),
    auto_https: page(
      'only off and disable_redirects; with off, sites with HTTPS still get certificates (Caddy: only those with certificate files)',
    ),
    skip_install_trust: page('accepted; only hubgate trust changes the trust store'),
    acme_ca: page('takes several URLs, which hubgate tries in order'),
    acme_dns: page(
      "the modules of nine DNS companies, with Caddy's options; use rfc2136, acme-dns or exec for others",
    ),
    on_demand_tls: page('ask is required'),
    servers: difference(
      'with an address, only for that listener; an option that is not set there has its default',
      /^servers [^{\s]/,
    ),
  },
  'Global option servers': {
    listener_wrappers: page('write proxy_protocol <ranges> directly in servers'),
    timeouts: page('the defaults are read_header 10s, read_body 60s and idle 2m'),
    client_ip_headers: page(
      'the same; apps get these fields only from trusted proxies, not from request_header (write header_up)',
    ),
    trusted_proxies: difference(
      'only static; the client is always the rightmost address that is not trusted',
    ),
    trusted_proxies_strict: difference(
      'the same; if all addresses are trusted, the client is the leftmost one (Caddy: the peer)',
    ),
    max_header_size: page('the default is 80KiB (Caddy: 1MB)'),
    protocols: page('h1 and h2; the adapter removes h3'),
  },
  Directives: {
    basicauth: page('use basic_auth; hubgate reads the old name with a warning'),
    skip_log: page('use log_skip; hubgate reads the old name with a warning'),
    basic_auth: difference(
      'takes bcrypt and argon2id, limits the wrong passwords of each address, and escapes quotes in the realm',
    ),
    bind: page(
      'the same; also takes open sockets (fd/); not beside a site that listens on all addresses of the port',
    ),
    encode: difference(
      'also offers br; the default is br and gzip; hubgate encodes every response without a Content-Length',
      /^encode(?: [@/*]\S*)?(?: \{|$)/,
    ),
    file_server: difference(
      'files whose names begin with a dot get a 404, except .well-known; symbolic links may not lead out of the root',
    ),
    forward_auth: difference(
      'hubgate first removes the copied fields from all requests of clients to the site, also where its matcher does not match',
      /copy_headers/,
    ),
    handle_errors: page(
      'the same; takes statuses, which the matcher error_status also matches; blocks for the same status run as they are written, in Caddy the last one first',
    ),
    header: page(
      'the same; of Content-Type, Location and other fields that a message has only once, hubgate sends only the value that was set (Caddy sends it and that of the app)',
    ),
    invoke: page(
      "the same; a named route runs all its directives (Caddy's adapter keeps only the first one)",
    ),
    log: difference(
      "lines have the names of OpenTelemetry; write format caddy or format filter for Caddy's",
      /^(?!.*(?:format (?:caddy|filter)|output discard))/,
    ),
    metrics: difference("the metrics have hubgate's names, in the text format of Prometheus"),
    php_fastcgi: page(
      'splits paths at .php; PHP-FPM gets the directory of root; SSL_PROTOCOL and SSL_CIPHER are not set',
    ),
    redir: page("the same; the page of redir html has hubgate's design"),
    request_body: difference(
      'only max_size, read_timeout and write_timeout; hubgate refuses a Content-Length above max_size at once, even if nothing reads the body',
      /max_size/,
    ),
    reverse_proxy: page(
      'hubgate streams bodies, except with request_buffers and response_buffers; it adds Via, and drops forwarded fields of clients that are not trusted',
    ),
    root: difference(
      'the same; a value with .., or without a name, gives a 404 instead of another directory',
      /\{/,
    ),
    tls: page("takes files, ACME and the gateway's own authority; new keys are ECDSA P-256"),
  },
  Matchers: {
    expression: difference(
      'the functions of other matchers take only strings; parts of a request and variables are strings, which are read as numbers or booleans where they are compared with such; several expressions in a set must all hold (Caddy uses only the first)',
    ),
    path: difference(
      'the same; the value of a placeholder has no wildcards, and %* is not a wildcard',
      /path .*(?:\{|%\*)/,
    ),
    host: difference('the same; the value of a placeholder has no wildcards', /host .*\{/),
    header: difference('the same; the value of a placeholder has no wildcards', /header .*\{/),
    path_regexp: page('the same; RE2 syntax'),
    vars: page('the same; if a set has several names, all must match (Caddy: any)'),
    vars_regexp: page('the same; RE2 syntax'),
  },
  forward_auth: {
    copy_headers: page('the same; several fields of one name stay separate (Caddy joins them)'),
    method: difference('the same; the service gets no body', /^method (?!GET|HEAD)/),
  },
  file_server: {
    browse: difference('the listing is a page without scripts, or JSON; `a2` comes before `a10`'),
    hide: difference(
      'the same; names in the path of the root do not count, and the value of a placeholder has no wildcards',
      /\{/,
    ),
  },
  log: {
    output: page('only stderr, stdout and file'),
    format: page(
      "json has the names of OpenTelemetry; caddy has Caddy's names, and so does filter unless it wraps json; time_format takes no layouts of Go",
    ),
  },
  respond: {
    close: page('the same; over HTTP/2 the connection stays open'),
  },
  reverse_proxy: {
    lb_policy: difference(
      'the same; the cookie is SameSite=Lax with TLS as well (Caddy: None)',
      /^lb_policy cookie/,
    ),
    dynamic: page(
      'only a and srv; hubgate refuses health_uri and weights beside it (Caddy does not check such upstreams, and gives the weights to those that come first)',
    ),
    handle_response: page('the same; not for 101 Switching Protocols, which opens its tunnel'),
    replace_status: page(
      'the same; only a number: copy_response in handle_response also takes a placeholder',
    ),
    flush_interval: difference(
      'accepted; hubgate sends everything at once',
      /^flush_interval (?!-1\b)/,
    ),
    transport: page('only http and fastcgi'),
  },
  'reverse_proxy, transport http': {
    tls_server_name: page(
      'the same name for all requests; placeholders of a request are not supported',
    ),
    versions: page('the default is 1.1 (Caddy: 1.1 and 2); 3 is not supported'),
  },
  tls: {
    alpn: difference(
      'hubgate refuses a client that offers only other protocols (Caddy accepts one with HTTP/1.1)',
      /^alpn h2$/,
    ),
    dns: page(
      "the modules of nine DNS companies, with Caddy's options; use rfc2136, acme-dns or exec for others",
    ),
    issuer: page('only acme and internal'),
  },
  try_files: {
    policy: page(
      'the same; first_exist_fallback means first_exist, as in Caddy: the last file must exist as well',
    ),
  },
  'tls, client_auth': {
    trust_pool: page('only file'),
  },
};

/** A family of placeholders that have another value than in Caddy. */
interface PlaceholderNote {
  /** As the page calls them. */
  readonly names: string;
  readonly text: string;
  /** Their names, between braces; null: the note is for the page alone. */
  readonly repeated: RegExp | null;
  /** Lines in which there is no difference, from their beginning. */
  readonly except?: RegExp;
}

export const caddyPlaceholderNotes: readonly PlaceholderNote[] = [
  {
    names: '`{env.VAR}`, `{file.PATH}`',
    text: 'replaced when the configuration is loaded, not for each request',
    repeated: /^file\.(?!match\.|base$|ext$)/,
  },
  {
    names: '`{path}` `{dir}` `{file}` `{path.*}` and their `orig_` forms, decoded',
    text: 'percent-encoded, in their canonical form; decoded in matchers, and as the source of `map`',
    repeated:
      /^(?:(?:http\.request\.)?(?:orig_)?(?:uri\.path|path|dir|file)(?:$|\.(?:\d|dir|file|base|ext)))/,
    // Names of files and rewritten paths mean the same, decoded or not.
    except: /^(?:try_files|rewrite|(?:@\S+ )?(?:not )?file) /,
  },
  {
    names: '`{cookie.NAME}` without such a cookie: its own name',
    text: 'empty',
    repeated: /^(?:http\.request\.)?cookie\./,
  },
  {
    names: '`{http.auth.user.id}` without a login: its own name in fields and bodies',
    text: 'empty',
    repeated: null,
  },
  {
    names: '`{re.*}`, `{file_match.*}` of a matcher that has not matched: its own name',
    text: 'empty',
    repeated: null,
  },
  {
    names: 'text in the braces of a target or a variable that names nothing: empty',
    text: 'stays as text; a warning if it looks like a placeholder',
    repeated: null,
  },
  {
    names: "`{err.status_text}`, in Go's words; empty for a status without a name",
    text: "`Payload Too Large`, `URI Too Long`, `Range Not Satisfiable`, `I'm a Teapot`; `Unknown`",
    repeated: null,
  },
  {
    names: '`{err.message}` of an error that is not from `error`: its cause',
    text: 'empty; the cause is only in the log',
    repeated: /^(?:err|http\.error)\.message$/,
  },
  {
    names: '`{proto}`: nothing',
    text: 'the version of HTTP, as `{http.request.proto}`',
    repeated: /^proto$/,
  },
  {
    names: '`{time.now.*}`, in the zone of the machine',
    text: 'in UTC; only the layouts `http`, `common_log`, `year`, `unix` and `unix_ms`',
    repeated: /^time\.now(?!\.(?:unix|http))/,
  },
  {
    names: 'members of `{http.auth.user.*}` other than `id`',
    text: 'not supported',
    repeated: null,
  },
  {
    names: '`{tls_client_…}`, `{http.request.tls.client.…}`',
    text: 'only if `client_auth` verifies the certificate; otherwise empty, also in the modes `request` and `require`',
    repeated: /^(?:tls_client_|http\.request\.tls\.client\.)/,
  },
  {
    names: '`{tls_cipher}` `{tls_version}`, other `{http.request.tls.*}`',
    text: 'stay as text, with a warning; in a matcher a load error',
    repeated: null,
  },
  {
    names:
      '`{http.request.local.*}`, `{http.request.duration}`, `{http.request.body}`, `{http.reverse_proxy.upstream.latency}`',
    text: 'stay as text, with a warning',
    repeated: null,
  },
];

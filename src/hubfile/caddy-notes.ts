// How what hubgate has of a Caddyfile differs from it. docs/from-caddy.md is generated from this table, and
// the reader of a Caddyfile repeats what its text touches. What is not here is the same, or refused with the
// reader's hint.

interface Note {
  readonly text: string;
  /** What the line with its block must contain for the note to be repeated; null: it never is. */
  readonly repeated: RegExp | null;
}

/** For the page alone: a limit that the reader itself reports, or nothing that changes an answer. */
function page(text: string): Note {
  return { text, repeated: null };
}

/** A difference that whoever writes the word meets, or writes it in such a way. */
function difference(text: string, repeated = /^/): Note {
  return { text, repeated };
}

/** Each word, by the title of its table: the directives and options around it. */
export const caddyNotes: Readonly<Record<string, Readonly<Record<string, Note>>>> = {
  'Global options': {
    order: page("the same, of hubgate's directives"),
    storage: page("a directory; Caddy's file_system with its root too"),
    admin: difference(
      'localhost:2029 unless it is set (Caddy: 2019), never a Unix socket; the API is another, without a configuration in it',
      /^admin (?!off\b)/,
    ),
    persist_config: page(
      'off alone, as there; nothing is kept beside the file, so there is no --resume',
    ),
    log: page('the same; include and exclude take http.log.access and http.log.access.NAME'),
    grace_period: page('30s unless it is set (Caddy: none)'),
    metrics: difference('an address on which metrics are served; they are always counted'),
    auto_https: page('off and disable_redirects'),
    skip_install_trust: page('accepted; the trust store is only touched by hubgate trust'),
    acme_ca: page('several, tried in order'),
    acme_dns: page(
      "nine companies, with the options of Caddy's modules; rfc2136, acme-dns or exec for others",
    ),
    on_demand_tls: page('ask is mandatory'),
    servers: difference(
      'with an address of that listener alone; what it leaves out has its default',
      /^servers [^{\s]/,
    ),
  },
  'Global option servers': {
    listener_wrappers: page('proxy_protocol <ranges> stands in servers itself'),
    timeouts: page('read_header 10s, read_body 60s, idle 2m unless they are set'),
    trusted_proxies: difference(
      'static alone; the rightmost address that is not trusted is the client, always',
    ),
    max_header_size: page('80KiB unless it is set (Caddy: 1MB)'),
    protocols: page('h1 and h2; the adapter takes h3 out'),
  },
  Directives: {
    basicauth: page('basic_auth; the old name is read with a warning'),
    skip_log: page('log_skip; the old name is read with a warning'),
    basic_auth: difference('bcrypt and argon2id; a bounded number of wrong passwords by address'),
    bind: page('the same, and sockets that it was handed (fd/)'),
    encode: difference(
      'br too; br and gzip unless they are named; an answer without a length is encoded whatever its length',
      /^encode(?: [@/*]\S*)?(?: \{|$)/,
    ),
    file_server: difference(
      'dotfiles do not exist but for .well-known; a link may not lead out of the root',
    ),
    forward_auth: difference(
      'the fields that it copies are always removed from the request of the client',
      /copy_headers/,
    ),
    handle_errors: page('the same, with statuses; error_status is the matcher of a status'),
    log: difference(
      'lines have the names of OpenTelemetry, unless format caddy or format filter is written',
      /^(?!.*(?:format (?:caddy|filter)|output discard))/,
    ),
    metrics: difference(
      'the metrics have names of their own; the format is the older one of Prometheus',
    ),
    php_fastcgi: page(
      'split on .php; the root as PHP-FPM sees it is that of root; no SSL_PROTOCOL and SSL_CIPHER',
    ),
    redir: page('the same; the page of html has the design of all pages'),
    request_body: difference(
      'max_size, read_timeout and write_timeout; a body whose length is too large is refused at once, also where nothing would read it',
      /max_size/,
    ),
    reverse_proxy: page(
      'bodies are streamed, except for the bounded request_buffers and response_buffers; Via is added; forwarded fields of who is not trusted are dropped',
    ),
    tls: page("files, ACME and the gateway's own authority; keys are ECDSA P-256"),
  },
  Matchers: {
    expression: difference(
      'CEL; functions of other matchers take texts alone, and what of a request is text stays text; several in a set must all hold, of which Caddy takes the first alone',
    ),
    path: difference(
      'the same; what a placeholder brings in has no wildcards; %* is not one',
      /path .*(?:\{|%\*)/,
    ),
    host: difference('the same; what a placeholder brings in has no wildcards', /host .*\{/),
    header: difference('the same; what a placeholder brings in has no wildcards', /header .*\{/),
    path_regexp: page('RE2 syntax, as there'),
    vars: page(
      'the same; several names in a set must all have their values, of which Caddy takes any',
    ),
    vars_regexp: page('RE2 syntax, as there'),
  },
  forward_auth: {
    copy_headers: page('the same; several fields of the service stay several, which Caddy joins'),
    method: difference('the same, and the service gets no body', /^method (?!GET|HEAD)/),
  },
  file_server: {
    browse: difference('a page without script, or JSON; `a2` stands before `a10`'),
    hide: difference(
      'the same; of names those of the root itself do not count, and a placeholder brings no wildcards in',
      /\{/,
    ),
  },
  log: {
    output: page('stderr, stdout or file'),
    format: page(
      'json has the names of OpenTelemetry; caddy has those of Caddy, and so has filter unless it wraps json; no layouts of Go in time_format',
    ),
  },
  reverse_proxy: {
    lb_policy: difference(
      'the same; the cookie of lb_policy is SameSite=Lax with TLS as well (Caddy: None)',
      /^lb_policy cookie/,
    ),
    dynamic: page(
      'a and srv; no multi; health_uri and weights beside it are refused (Caddy makes no active checks of such upstreams, and gives its weights to whichever come first)',
    ),
    flush_interval: difference(
      'accepted; everything is flushed as it comes',
      /^flush_interval (?!-1\b)/,
    ),
    transport: page('http and fastcgi'),
  },
  'reverse_proxy, transport http': {
    versions: page('1.1 unless they are given (Caddy: 1.1 and 2); no 3'),
  },
  tls: {
    alpn: difference(
      'a client that offers other protocols alone is refused; Caddy lets a client with HTTP/1.1 in',
      /^alpn h2$/,
    ),
    dns: page(
      "nine companies, with the options of Caddy's modules; rfc2136, acme-dns or exec for others",
    ),
    issuer: page('acme and internal'),
  },
  'tls, client_auth': {
    trust_pool: page('file'),
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
    repeated: /^file\.(?!match\.)/,
  },
  {
    names: '`{path}` `{dir}` `{file}` `{path.*}` and their `orig_` forms, decoded',
    text: 'percent-encoded, in their canonical form',
    repeated:
      /^(?:(?:http\.request\.)?(?:orig_)?(?:uri\.path|path|dir|file)(?:$|\.(?:\d|dir|file)))/,
    // Names of files and rewritten paths mean the same, decoded or not.
    except: /^(?:try_files|rewrite|(?:@\S+ )?(?:not )?file) /,
  },
  {
    names: '`{cookie.NAME}` without such a cookie: its own name',
    text: 'empty',
    repeated: /^(?:http\.request\.)?cookie\./,
  },
  {
    names: '`{re.*}`, `{file_match.*}` of a matcher that has not matched: its own name',
    text: 'empty',
    repeated: null,
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

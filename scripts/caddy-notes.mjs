// How what hubgate has of a Caddyfile differs from it: material of docs/from-caddy.md, by the places of
// test/unit/directives/caddy-names.ts. What is not here is the same, or refused with the reader's hint.
export const notes = {
  'Global options': {
    order: "the same, of hubgate's directives",
    storage: "a directory; Caddy's file_system with its root too",
    admin:
      'localhost:2029 unless it is set (Caddy: 2019), never a Unix socket; the API is another, without a configuration in it',
    persist_config: 'off alone, as there; nothing is kept beside the file, so there is no --resume',
    log: 'the same; include and exclude take http.log.access and http.log.access.NAME',
    grace_period: '30s unless it is set (Caddy: none)',
    metrics: 'an address on which metrics are served; they are always counted',
    auto_https: 'off and disable_redirects',
    skip_install_trust: 'accepted; the trust store is only touched by hubgate trust',
    acme_ca: 'several, tried in order',
    acme_dns: 'rfc2136, acme-dns or exec; no modules of providers',
    on_demand_tls: 'ask is mandatory',
    servers: 'with an address of that listener alone; what it leaves out has its default',
  },
  'Global option servers': {
    listener_wrappers: 'proxy_protocol <ranges> stands in servers itself',
    timeouts: 'read_header 10s, read_body 60s, idle 2m unless they are set',
    trusted_proxies: 'static alone',
    max_header_size: '80KiB unless it is set (Caddy: 1MB)',
    protocols: 'h1 and h2; the adapter takes h3 out',
  },
  Directives: {
    basicauth: 'basic_auth; the old name is read with a warning',
    skip_log: 'log_skip; the old name is read with a warning',
    basic_auth: 'bcrypt and argon2id; a bounded number of wrong passwords by address',
    bind: 'the same, and sockets that it was handed (fd/)',
    encode: 'br too; br and gzip unless they are named',
    file_server: 'dotfiles do not exist but for .well-known; a link may not lead out of the root',
    forward_auth: 'the fields that it copies are always removed from the request of the client',
    handle_errors: 'the same, with statuses; error_status is the matcher of a status',
    php_fastcgi: 'split on .php; the root as PHP-FPM sees it is that of root',
    redir: 'the same; the page of html has the design of all pages',
    request_body: 'max_size, read_timeout and write_timeout',
    reverse_proxy:
      'bodies are never buffered; Via is added; forwarded fields of who is not trusted are dropped',
    tls: "files, ACME and the gateway's own authority; keys are ECDSA P-256",
  },
  Matchers: {
    expression:
      'CEL; functions of other matchers take texts alone, and what of a request is text stays text',
    path: 'the same; what a placeholder brings in has no wildcards; %* is not one',
    host: 'the same; what a placeholder brings in has no wildcards',
    header: 'the same; what a placeholder brings in has no wildcards',
    path_regexp: 'RE2 syntax, as there',
    vars_regexp: 'RE2 syntax, as there',
  },
  file_server: {
    browse: 'a page without script, or JSON; `a2` stands before `a10`',
    hide: 'the same; of names those of the root itself do not count, and a placeholder brings no wildcards in',
  },
  log: {
    output: 'stderr, stdout or file',
    format: 'json has the names of OpenTelemetry; caddy has those of Caddy, and so has filter unless it wraps json; no layouts of Go in time_format',
  },
  reverse_proxy: {
    dynamic:
      'a and srv; no multi; health_uri and weights beside it are refused (Caddy makes no active checks of such upstreams, and gives its weights to whichever come first)',
    flush_interval: 'accepted; everything is flushed as it comes',
    transport: 'http and fastcgi',
  },
  'reverse_proxy, transport http': {
    versions: '1.1 unless they are given (Caddy: 1.1 and 2); no 3',
  },
  tls: {
    dns: 'rfc2136, acme-dns or exec',
    issuer: 'acme and internal',
  },
  'tls, client_auth': {
    trust_pool: 'file',
  },
};

/** Directives of a Caddyfile, and of well-known plug-ins, that hubgate lacks, each with what does its work. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  authenticate: 'use forward_auth with a program that signs people in',
  authorize: 'use forward_auth with a program that signs people in, or basic_auth',
  copy_response:
    'reverse_proxy { header_down } and replace_status change an answer, handle_response replaces it',
  copy_response_headers: 'use header_down in reverse_proxy to choose what the client sees',
  fs: 'use root with a directory of this machine',
  intercept:
    'use reverse_proxy { handle_response } for answers of the app, handle_errors for others',
  method: 'let the app treat the request',
  metrics: 'metrics are on the admin API, at /metrics, and at the global option metrics <address>',
  php: 'use php_fastcgi with a PHP-FPM',
  php_server: 'use php_fastcgi with a PHP-FPM, and file_server',
  push: 'browsers no longer support pushes; send Link: rel=preload with header',
  templates: 'let the app render its pages',
  request_id: 'use request_header X-Request-Id {uuid}',
  tracing: 'requests are always traced; the global option otlp <url> sends their spans',
  vulcain: 'let the app send Link: rel=preload',
};

/** Conditions of a Caddyfile that hubgate lacks, each with what does its work. */
export const unsupportedConditions: Readonly<Record<string, string>> = {
  expression:
    'compare values with vars {placeholder} value, or vars_regexp {placeholder} pattern; lines of one block must all hold, and not negates',
  tls: 'use protocol https instead',
};

/**
 * Options of a Caddyfile that hubgate lacks, by the block in which they stand, each with what does
 * their work; an option with a syntax of its own is never looked for here.
 */
const CADDY_OPTIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'the global options': {
    cache: 'write ttl and stale in the cache of each site',
    cert_lifetime: 'certificates last as long as their authority says',
    dns: 'name the provider in acme_dns, or in tls { dns … }',
    ech: 'leave it out: Node offers no Encrypted Client Hello',
    events: 'follow the log or the metrics, or ask the admin API',
    frankenphp: 'use php_fastcgi in the sites, with a PHP-FPM',
    fallback_sni:
      'who sends no name gets the certificate of the catch-all site, or of the addresses',
    filesystem: 'use root and file_server with a directory of this machine',
    ocsp_interval: 'give certificate files if you need stapling',
    preferred_chains: 'the chain is the one that the authority offers first',
    renew_interval:
      'certificates are renewed when a third of their time is left, without a setting',
    security: 'use forward_auth in the sites, with a program that signs people in',
    storage_check: 'the storage is always checked before it is used',
    storage_clean_interval: 'nothing is left in the storage that has to be cleaned',
  },
  log: {
    sampling: 'log_skip with a matcher leaves out what is not wanted',
  },
  output: {
    dir_mode: 'directories of logs are made for their owner alone',
    backup_time_format: 'rolled files are named by their time in UTC',
  },
  servers: {
    '0rtt': 'leave it out: TLS early data is not accepted, as it can be replayed',
    allow_h2c: 'use HTTPS for HTTP/2 between clients and the gateway: protocols h1 h2',
    enable_full_duplex: 'leave it out: bodies always go both ways at once',
    experimental_http3: 'HTTP/3 is not spoken; protocols h1 h2 are',
    keepalive_count: 'timeouts { idle <duration> } ends what is not used',
    keepalive_idle: 'timeouts { idle <duration> } ends what is not used',
    keepalive_interval: 'timeouts { idle <duration> } ends what is not used',
    listener_wrappers:
      'proxy_protocol <ranges> stands in servers itself; the others are not needed',
    metrics:
      'leave it out: metrics are always counted, and read on the admin API or by metrics <address>',
    name: 'leave it out: metrics and logs name the site',
    strict_sni_host:
      'leave it out: a site with client_auth is always held to the name of the handshake',
    trace: 'log { level debug }',
    trusted_proxies_strict:
      'leave it out: the rightmost address that is not trusted is always taken',
    trusted_proxies_unix:
      'let the proxy use a port of this machine: trusted_proxies static 127.0.0.1/32',
  },
  timeouts: {
    write:
      'use request_body { write_timeout <duration> } in a site, and hub { write_timeout } for streams',
  },
  file_server: {
    fs: 'root <directory> is a directory of this machine',
  },
  issuer: {
    profile: 'the profile is the one that the authority takes by itself',
  },
  reverse_proxy: {
    stream_buffer_size: 'leave it out: streams are passed on as they come',
  },
  tls: {
    force_automate: 'leave it out: a site without certificate files always gets a certificate',
    get_certificate: 'write tls <certificate file> <key file>; files that change are read again',
    insecure_secrets_log: 'leave it out: no secrets of connections are ever written',
    key_type: 'keys are ECDSA P-256; write tls <cert> <key> for another',
    renewal_window_ratio:
      'certificates are renewed when a third of their time is left, without a setting',
    reuse_private_keys: 'leave it out: each certificate has a new key',
  },
};

/** What does the work of an option that hubgate lacks; undefined for one that Caddy has not either. */
export function insteadOfOption(owner: string, option: string): string | undefined {
  const options = Object.hasOwn(CADDY_OPTIONS, owner) ? CADDY_OPTIONS[owner] : undefined;
  return options !== undefined && Object.hasOwn(options, option) ? options[option] : undefined;
}

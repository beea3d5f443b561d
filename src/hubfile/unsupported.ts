/**
 * Directives of a Caddyfile, and of well-known plug-ins, that hubgate does not have, each with the
 * alternative.
 */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only for itself; use a separate certificate authority',
  authenticate: 'use forward_auth with a program for logging in',
  authorize: 'use forward_auth with a program for logging in, or basic_auth',
  fs: 'use root with a directory of this machine',
  php: 'use php_fastcgi with a PHP-FPM',
  php_server: 'use php_fastcgi with a PHP-FPM, and file_server',
  push: 'browsers no longer support push; use header to send Link: rel=preload',
  timeouts: 'use request_body { read_timeout; write_timeout } in the site',
  templates: 'let the app render its pages',
  request_id: 'use request_header X-Request-Id {uuid}',
  tracing: 'hubgate always traces requests; the global option otlp <url> sends their spans',
  vulcain: 'let the app send Link: rel=preload',
};

/** Conditions of a Caddyfile that hubgate does not have, each with the alternative. */
export const unsupportedConditions: Readonly<Record<string, string>> = {
  tls: 'use protocol https instead',
};

/**
 * Options of a Caddyfile that hubgate does not have, by their block, each with the alternative. An option
 * with a syntax of its own is never looked up here.
 */
const CADDY_OPTIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'the global options': {
    cache: 'write ttl and stale in the cache of each site',
    cert_lifetime: 'the authority chooses the lifetime of certificates',
    dns: 'configure the provider in acme_dns, or in tls { dns … }',
    ech: 'leave it out: Node offers no Encrypted Client Hello',
    events: 'use the log, the metrics or the admin API',
    frankenphp: 'use php_fastcgi in the sites, with a PHP-FPM',
    fallback_sni:
      'clients that send no name get the certificate of the catch-all site, or of the IP address',
    filesystem: 'use root and file_server with a directory of this machine',
    preferred_chains: 'hubgate uses the chain that the authority offers first',
    security: 'use forward_auth in the sites, with a program that signs people in',
  },
  log: {
    sampling: 'use log_skip with a matcher to leave requests out',
  },
  output: {
    dir_mode: 'hubgate creates log directories that only their owner can access',
  },
  servers: {
    allow_h2c: 'use HTTPS for HTTP/2 between clients and the gateway: protocols h1 h2',
    experimental_http3: 'use protocols h1 h2; hubgate does not support HTTP/3',
    listener_wrappers:
      'write proxy_protocol <ranges> in servers; the other wrappers are not needed',
    strict_sni_host:
      'leave it out: a site with client_auth always requires the name of the handshake',
    trace: 'log { level debug }',
    trusted_proxies_unix:
      'let the proxy connect to a local port: trusted_proxies static 127.0.0.1/32',
  },
  timeouts: {
    write:
      'use request_body { write_timeout <duration> } in a site, and hub { write_timeout } for streams',
  },
  file_server: {
    fs: 'root <directory> must be a local directory',
  },
  issuer: {
    profile: 'hubgate uses the default profile of the authority',
  },
  tls: {
    get_certificate: 'write tls <certificate file> <key file>; files that change are read again',
    key_type: 'keys are ECDSA P-256; write tls <cert> <key> for another',
  },
};

const RENEWAL = 'hubgate renews certificates when a third of their lifetime is left';
const BUFFERS = 'hubgate chooses the size of its buffers';
const PROBES = 'hubgate chooses when it checks whether a silent client is still there';
const IDLE =
  'hubgate keeps up to 1,024 idle connections to each upstream, for the time of keepalive';

/**
 * Options of a Caddyfile that make no response of hubgate different, by their block, each with the reason. They
 * are ignored with a warning, so that a Caddyfile with them works.
 */
const NEEDLESS_OPTIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'the global options': {
    ocsp_interval: 'hubgate staples no OCSP responses',
    ocsp_stapling: 'hubgate staples no OCSP responses',
    renewal_window_ratio: RENEWAL,
    renew_interval: RENEWAL,
    storage_check: 'hubgate always checks the storage before it uses it',
    storage_clean_interval: "hubgate's storage needs no cleaning",
  },
  servers: {
    '0rtt': 'hubgate does not accept TLS early data, because it can be replayed',
    enable_full_duplex: 'bodies are always full duplex',
    keepalive_count: PROBES,
    keepalive_idle: PROBES,
    keepalive_interval: PROBES,
    metrics: 'metrics are always on; read them at the admin API, or use the directive metrics',
    name: 'metrics and logs always name the site',
  },
  output: {
    backup_time_format: 'hubgate names rolled files by their time in UTC',
    roll_local_time: 'hubgate names rolled files by their time in UTC',
    roll_uncompressed: 'hubgate does not compress rolled files',
  },
  reverse_proxy: { stream_buffer_size: 'hubgate always streams responses' },
  transport: {
    read_buffer: BUFFERS,
    write_buffer: BUFFERS,
    dial_fallback_delay: 'hubgate tries addresses of both versions, as Node does',
    expect_continue_timeout: 'hubgate waits for one second',
    keepalive_interval: PROBES.replace('client', 'upstream'),
    keepalive_idle_conns: IDLE,
    keepalive_idle_conns_per_host: IDLE,
    tls_timeout: 'dial_timeout includes the handshake',
    tls_renegotiation: 'hubgate never renegotiates',
  },
  tls: {
    force_automate:
      'write issuer acme for a site that shall not use the certificate of another site',
    insecure_secrets_log: 'hubgate never writes secrets of connections',
    renewal_window_ratio: RENEWAL,
    reuse_private_keys: 'each certificate gets a new key',
  },
};

/** Why an option needs no counterpart in hubgate; undefined if it has one, or is unknown. */
export function needlessBecause(owner: string, option: string): string | undefined {
  return ownText(NEEDLESS_OPTIONS, owner, option);
}

/**
 * The alternative to an option that hubgate does not have; undefined for one that Caddy does not have either.
 */
export function insteadOfOption(owner: string, option: string): string | undefined {
  return ownText(CADDY_OPTIONS, owner, option);
}

function ownText(table: typeof CADDY_OPTIONS, owner: string, option: string): string | undefined {
  const options = Object.hasOwn(table, owner) ? table[owner] : undefined;
  return options !== undefined && Object.hasOwn(options, option) ? options[option] : undefined;
}

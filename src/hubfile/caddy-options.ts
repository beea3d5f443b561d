/**
 * Options of a Caddyfile that hubgate lacks, by the block in which they stand, each with what does
 * their work; an option with a syntax of its own is never looked for here. Directives are in
 * `directives/unsupported.ts`, conditions in `matchers/unsupported.ts`.
 */
const CADDY_OPTIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'the global options': {
    acme_dns:
      'prove names by acme_challenges tls-alpn-01 http-01, or give certificate files: tls <cert> <key>',
    cert_lifetime: 'certificates last as long as their authority says',
    dns: 'leave it out: no DNS provider is asked for anything',
    ech: 'leave it out: Node offers no Encrypted Client Hello',
    events: 'follow the log or the metrics, or ask the admin API',
    fallback_sni:
      'who sends no name gets the certificate of the catch-all site, or of the addresses',
    filesystem: 'use root and file_server with a directory of this machine',
    ocsp_interval: 'give certificate files if you need stapling',
    preferred_chains: 'the chain is the one that the authority offers first',
    renew_interval:
      'certificates are renewed when a third of their time is left, without a setting',
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
  reverse_proxy: {
    health_follow_redirects: 'name the page itself: health_uri',
    health_method: 'upstreams are asked by GET: health_uri',
    health_request_body: 'upstreams are asked by GET, without a body: health_uri',
    health_upstream: 'health_port asks another port of each upstream',
    buffer_requests: 'bodies are passed on as they come',
    buffer_responses: 'bodies are passed on as they come',
    max_buffer_size: 'bodies are passed on as they come',
    verbose_logs: 'log { level debug }',
  },
  transport: {
    dial_fallback_delay: 'dial_timeout bounds how long an upstream is dialled',
    expect_continue_timeout:
      'what the app answers to Expect is passed on: response_header_timeout bounds the wait',
    forward_proxy_url: 'name the proxy as the upstream, or reach the app directly',
    keepalive_idle_conns: 'keepalive <duration> ends connections that are not used',
    keepalive_idle_conns_per_host: 'max_conns_per_host bounds the connections to each upstream',
    keepalive_interval: 'keepalive <duration> ends connections that are not used',
    local_address: 'let the routes of this machine choose the address',
    max_response_header: 'the head of an answer has a bound of its own',
    network_proxy: 'name the proxy as the upstream, or reach the app directly',
    read_buffer: 'leave it out: buffers are those of Node',
    resolvers: 'upstreams are looked up as this machine looks names up',
    tls_client_auth: 'let the upstream know the gateway by its address, or by a header: header_up',
    tls_curves: 'leave it out: the curves are those of Node',
    tls_except_ports: 'write http:// or https:// before each upstream',
    tls_renegotiation: 'leave it out: renegotiation is never allowed',
    tls_timeout: 'dial_timeout bounds the handshake too',
    write_buffer: 'leave it out: buffers are those of Node',
  },
  tls: {
    ca_root: 'set acme_ca_root in the global options',
    dns_challenge_override_domain:
      'prove names by acme_challenges tls-alpn-01 http-01 in the global options',
    dns_ttl: 'prove names by acme_challenges tls-alpn-01 http-01 in the global options',
    eab: 'set acme_eab in the global options',
    force_automate: 'leave it out: a site without certificate files always gets a certificate',
    get_certificate: 'write tls <certificate file> <key file>; files that change are read anew',
    insecure_secrets_log: 'leave it out: no secrets of connections are ever written',
    key_type: 'keys are ECDSA P-256; write tls <cert> <key> for another',
    propagation_delay: 'prove names by acme_challenges tls-alpn-01 http-01 in the global options',
    propagation_timeout: 'prove names by acme_challenges tls-alpn-01 http-01 in the global options',
    renewal_window_ratio:
      'certificates are renewed when a third of their time is left, without a setting',
    resolvers: 'names are looked up as this machine looks them up',
    reuse_private_keys: 'leave it out: each certificate has a new key',
  },
};

/** What does the work of an option that hubgate lacks; undefined for one that Caddy has not either. */
export function insteadOfOption(owner: string, option: string): string | undefined {
  const options = Object.hasOwn(CADDY_OPTIONS, owner) ? CADDY_OPTIONS[owner] : undefined;
  return options !== undefined && Object.hasOwn(options, option) ? options[option] : undefined;
}

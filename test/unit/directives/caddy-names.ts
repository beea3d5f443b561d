/** All that a Caddyfile of Caddy 2 can say, by where it is said, from its documentation (2.6 to 2.10). */

/** What stands around an option; `$` is where it goes. */
const site = (inner: string): string => `:8080 {\n${inner}\n}\n`;
const options = (inner: string): string => `{\n${inner}\n}\n:8080 {\n\trespond ok\n}\n`;
const block = (head: string): string => site(`${head} {\n$\n}`);

export const CADDY_NAMES: readonly (readonly [template: string, names: string])[] = [
  [
    site('$'),
    `abort acme_server basic_auth basicauth bind copy_response copy_response_headers encode error
    file_server forward_auth fs handle handle_errors handle_path header import intercept invoke log
    log_append log_name log_skip map method metrics php_fastcgi push redir request_body
    request_header respond reverse_proxy rewrite root route skip_log templates tls tracing try_files
    uri vars`,
  ],
  [
    site('@name $'),
    `client_ip expression file header header_regexp host method not path path_regexp protocol query
    remote_ip tls vars vars_regexp`,
  ],
  [
    options('$'),
    `acme_ca acme_ca_root acme_dns acme_eab admin auto_https cert_issuer cert_lifetime debug
    default_bind default_sni dns ech email events fallback_sni filesystem grace_period http_port
    https_port key_type local_certs log metrics ocsp_interval ocsp_stapling on_demand_tls order
    persist_config pki preferred_chains renew_interval servers shutdown_delay skip_install_trust
    storage storage_check storage_clean_interval`,
  ],
  [options('log {\n$\n}'), 'output format level include exclude sampling'],
  [
    options('servers {\n$\n}'),
    `0rtt allow_h2c client_ip_headers enable_full_duplex experimental_http3 keepalive_count
    keepalive_idle keepalive_interval listener_wrappers log_credentials max_header_size metrics name
    protocols strict_sni_host timeouts trace trusted_proxies trusted_proxies_strict
    trusted_proxies_unix`,
  ],
  [options('servers {\ntimeouts {\n$\n}\n}'), 'read_body read_header write idle'],
  [options('on_demand_tls {\n$\n}'), 'ask permission interval burst'],
  [options('admin localhost:2019 {\n$\n}'), 'origins enforce_origin'],
  [block('log'), 'output format level hostnames no_hostname sampling'],
  [
    block('log {\noutput file /tmp/x.log').replace(/\}\n\}\n$/, '}\n}\n}\n'),
    `mode dir_mode roll_disabled roll_size roll_interval roll_minutes roll_at roll_uncompressed
    roll_compression roll_local_time roll_keep roll_keep_for backup_time_format`,
  ],
  [block('encode'), 'gzip zstd br minimum_length match'],
  [block('error 500'), 'message'],
  [
    block('file_server'),
    `fs root hide index browse precompressed status disable_canonical_uris pass_thru
    etag_file_extensions`,
  ],
  [site('file_server {\nbrowse {\n$\n}\n}'), 'reveal_symlinks sort file_limit'],
  [block('forward_auth localhost:1'), 'uri copy_headers header_up method'],
  [block('header'), 'defer match'],
  [block('request_body'), 'max_size read_timeout write_timeout set'],
  [block('respond'), 'body close'],
  [block('try_files /x'), 'policy'],
  [
    block('php_fastcgi localhost:9000'),
    `root split index try_files env resolve_root_symlink capture_stderr dial_timeout read_timeout
    write_timeout`,
  ],
  [
    block('reverse_proxy localhost:1'),
    `to dynamic lb_policy lb_retries lb_try_duration lb_try_interval lb_retry_match health_uri
    health_upstream health_port health_path health_interval health_passes health_fails
    health_timeout health_method health_status health_request_body health_body
    health_follow_redirects health_headers fail_duration max_fails unhealthy_status
    unhealthy_latency unhealthy_request_count flush_interval request_buffers response_buffers
    buffer_requests buffer_responses max_buffer_size stream_timeout stream_close_delay
    stream_buffer_size
    trusted_proxies header_up header_down method rewrite transport replace_status handle_response
    verbose_logs`,
  ],
  [
    site('reverse_proxy localhost:1 {\ntransport http {\n$\n}\n}'),
    `read_buffer write_buffer max_response_header network_proxy forward_proxy_url dial_timeout
    dial_fallback_delay response_header_timeout expect_continue_timeout read_timeout write_timeout
    resolvers tls tls_client_auth tls_insecure_skip_verify tls_curves tls_timeout tls_trust_pool
    tls_trusted_ca_certs tls_server_name tls_renegotiation tls_except_ports keepalive
    keepalive_interval keepalive_idle_conns keepalive_idle_conns_per_host versions compression
    max_conns_per_host proxy_protocol local_address`,
  ],
  [
    site('reverse_proxy localhost:1 {\ntransport fastcgi {\n$\n}\n}'),
    `root split env resolve_root_symlink dial_timeout read_timeout write_timeout capture_stderr`,
  ],
  [
    block('tls'),
    `protocols ciphers curves alpn load ca ca_root key_type dns resolvers propagation_timeout
    propagation_delay dns_ttl dns_challenge_override_domain on_demand reuse_private_keys
    force_automate client_auth issuer get_certificate insecure_secrets_log eab renewal_window_ratio`,
  ],
  [
    site('tls {\nclient_auth {\n$\n}\n}'),
    `mode trust_pool trusted_leaf_cert trusted_leaf_cert_file trusted_ca_cert trusted_ca_cert_file
    verifier`,
  ],
  [
    site('tls {\nissuer acme {\n$\n}\n}'),
    `dir test_dir email profile timeout disable_http_challenge disable_tlsalpn_challenge
    alt_http_port alt_tlsalpn_port eab trusted_roots dns propagation_timeout propagation_delay
    dns_ttl dns_challenge_override_domain resolvers preferred_chains`,
  ],
  [
    site('reverse_proxy {\ndynamic srv a {\n$\n}\n}'),
    'service proto name refresh resolvers dial_timeout dial_fallback_delay grace_period',
  ],
  [
    site('reverse_proxy {\ndynamic a b 1 {\n$\n}\n}'),
    'name port refresh resolvers dial_timeout dial_fallback_delay versions',
  ],
];

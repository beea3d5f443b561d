// The words of Caddy's Caddyfile (2.10), by where they stand, and what differs where hubgate has them
// too: material of docs/from-caddy.md. Whether hubgate has one is asked of its reader.

/** Where a word stands, as a Hubfile around it. */
export const places = {
  'Global options': (word) => `{\n${word}\n}\n`,
  'servers { … }': (word) => `{\nservers {\n${word}\n}\n}\n`,
  'timeouts { … } of servers': (word) => `{\nservers {\ntimeouts {\n${word}\n}\n}\n}\n`,
  'on_demand_tls { … }': (word) => `{\non_demand_tls {\n${word}\n}\n}\n`,
  Directives: (word) => `:80 {\n${word}\n}\n`,
  Matchers: (word) => `:80 {\n@a ${word}\n}\n`,
  'encode { … }': inside('encode'),
  'file_server { … }': inside('file_server'),
  'forward_auth { … }': inside('forward_auth a:1'),
  'log { … }': inside('log'),
  'output file { … } of log': (word) => `:80 {\nlog {\noutput file /x {\n${word}\n}\n}\n}\n`,
  'php_fastcgi { … }': inside('php_fastcgi a:1'),
  'request_body { … }': inside('request_body'),
  'reverse_proxy { … }': inside('reverse_proxy a:1'),
  'transport http { … }': (word) =>
    `:80 {\nreverse_proxy a:1 {\ntransport http {\n${word}\n}\n}\n}\n`,
  'transport fastcgi { … }': (word) =>
    `:80 {\nreverse_proxy a:1 {\ntransport fastcgi {\n${word}\n}\n}\n}\n`,
  'dynamic srv { … }': (word) => `:80 {\nreverse_proxy {\ndynamic srv a {\n${word}\n}\n}\n}\n`,
  'dynamic a { … }': (word) => `:80 {\nreverse_proxy {\ndynamic a b 1 {\n${word}\n}\n}\n}\n`,
  'tls { … }': inside('tls'),
  'client_auth { … } of tls': (word) => `:443 {\ntls {\nclient_auth {\n${word}\n}\n}\n}\n`,
  'issuer acme { … } of tls': (word) => `:443 {\ntls {\nissuer acme {\n${word}\n}\n}\n}\n`,
};

function inside(directive) {
  return (word) => `:80 {\n${directive} {\n${word}\n}\n}\n`;
}

/** What Caddy knows in each place; behind a colon how it differs here, else it is the same. */
export const words = {
  'Global options': `
debug
http_port
https_port
default_bind: each site has a bind of its own; the adapter writes it
order: the same, of hubgate's directives
storage: a directory; Caddy's file_system with its root too
storage_check
storage_clean_interval
admin: localhost:2029 unless it is set (Caddy: 2019), never a Unix socket; the API is another, without a configuration in it
persist_config: off alone; nothing is kept beside the file
log: the same, without filters of fields; format is console or json
grace_period: 30s unless it is set (Caddy: none)
shutdown_delay
metrics: an address on which metrics are served; they are always counted
auto_https: off and disable_redirects
email
default_sni
fallback_sni
local_certs
skip_install_trust: accepted; the trust store is only touched by hubgate trust
acme_ca: several, tried in order
acme_ca_root
acme_eab
acme_dns: rfc2136, acme-dns or exec; no modules of providers
on_demand_tls: ask is mandatory
key_type
cert_issuer
renew_interval
cert_lifetime
ocsp_interval
ocsp_stapling
preferred_chains
dns
ech
filesystem
servers: with an address of that listener alone; what it leaves out has its default
events
pki`,
  'servers { … }': `
name
listener_wrappers: proxy_protocol <ranges> stands in servers itself
timeouts: read_header 10s, read_body 60s, idle 2m unless they are set
trusted_proxies: static alone
trusted_proxies_strict
trusted_proxies_unix
client_ip_headers
trace
metrics
max_header_size: 80KiB unless it is set (Caddy: 1MB)
enable_full_duplex
log_credentials
protocols: h1 and h2; the adapter takes h3 out
strict_sni_host
keepalive_interval
keepalive_idle
keepalive_count
0rtt`,
  'timeouts { … } of servers': 'read_body\nread_header\nwrite\nidle',
  'on_demand_tls { … }': 'ask\npermission\ninterval\nburst',
  Directives: `
abort
acme_server
basic_auth: bcrypt and argon2id; a bounded number of wrong passwords by address
bind: the same, and sockets that it was handed (fd/)
copy_response
copy_response_headers
encode: br too, br and gzip unless they are named; no levels
error
file_server: dotfiles do not exist but for .well-known; a link may not lead out of the root; 405 for other methods than GET and HEAD
forward_auth: the fields that it copies are taken off the request of the client always
fs
handle
handle_errors: the same, with statuses; error_status is the matcher of a status
handle_path
header
import
intercept
invoke
log: the same, without filters of fields
log_append
log_name
log_skip
map
method
metrics
php_fastcgi: split on .php; the root as PHP-FPM sees it is that of root
push
redir: no html
request_body: max_size, read_timeout and write_timeout
request_header
respond
reverse_proxy: bodies are never buffered; Via is added; forwarded fields of who is not trusted are dropped
rewrite
root
route
templates
tls: files, ACME and the gateway's own authority; keys are ECDSA P-256
tracing
try_files
uri
vars`,
  Matchers: `
client_ip
expression: compare values with vars or vars_regexp; {err.status_code} in handle_errors is error_status, which the adapter writes
file
header
header_regexp
host
method
not
path
path_regexp: RE2 syntax, as there
protocol
query
remote_ip
tls
vars
vars_regexp: RE2 syntax, as there`,
  'encode { … }': 'gzip: no level; the adapter takes it out\nzstd: no level\nminimum_length\nmatch',
  'file_server { … }': `
fs
root
hide
index
browse: a page without script, or JSON
precompressed
status
disable_canonical_uris
pass_thru
etag_file_extensions`,
  'forward_auth { … }': 'uri\ncopy_headers',
  'log { … }': `
hostnames
no_hostname
output: stderr, stdout or file
format: console or json
level
include
exclude
sampling`,
  'output file { … } of log': `
mode
dir_mode
roll_disabled
roll_size
roll_uncompressed
roll_local_time
roll_keep
roll_keep_for
backup_time_format
roll_interval`,
  'php_fastcgi { … }': `
root
split
index
try_files
env
resolve_root_symlink
capture_stderr
dial_timeout
read_timeout
write_timeout`,
  'request_body { … }': 'max_size\nread_timeout\nwrite_timeout\nset',
  'reverse_proxy { … }': `
to
dynamic: a and srv; no multi
lb_policy
lb_retries
lb_try_duration
lb_try_interval
lb_retry_match
health_uri
health_upstream
health_port
health_interval
health_passes
health_fails
health_timeout
health_method
health_status
health_request_body
health_body
health_follow_redirects
health_headers
fail_duration
max_fails
unhealthy_status
unhealthy_latency
unhealthy_request_count
flush_interval: accepted; everything is flushed as it comes
request_buffers
response_buffers
stream_timeout
stream_close_delay
stream_buffer_size
trusted_proxies
header_up
header_down
method
rewrite
transport: http and fastcgi
replace_status
handle_response
verbose_logs`,
  'transport http { … }': `
read_buffer
write_buffer
max_response_header
network_proxy
dial_timeout
dial_fallback_delay
response_header_timeout
expect_continue_timeout
resolvers
tls
tls_client_auth
tls_insecure_skip_verify
tls_curves
tls_timeout
tls_trust_pool
tls_server_name
tls_renegotiation
tls_except_ports
keepalive
keepalive_interval
keepalive_idle_conns
keepalive_idle_conns_per_host
versions: 1.1 unless they are given (Caddy: 1.1 and 2); no 3
compression
max_conns_per_host
proxy_protocol
local_address
forward_proxy_url`,
  'transport fastcgi { … }': `
root
split
env
resolve_root_symlink
dial_timeout
read_timeout
write_timeout
capture_stderr`,
  'dynamic srv { … }': `
service
proto
name
refresh
resolvers
dial_timeout
dial_fallback_delay
grace_period`,
  'dynamic a { … }': 'name\nport\nrefresh\nresolvers\ndial_timeout\ndial_fallback_delay\nversions',
  'tls { … }': `
protocols
ciphers
curves
alpn
load
ca
ca_root
key_type
dns: rfc2136, acme-dns or exec
propagation_timeout
propagation_delay
dns_ttl
dns_challenge_override_domain
resolvers
eab
on_demand
reuse_private_keys
client_auth
issuer: acme and internal
get_certificate
insecure_secrets_log
renewal_window_ratio
force_automate`,
  'client_auth { … } of tls': `
mode
trust_pool: file
trusted_leaf_cert
trusted_leaf_cert_file
trusted_ca_cert
trusted_ca_cert_file
verifier`,
  'issuer acme { … } of tls': `
dir
test_dir
email
profile
timeout
disable_http_challenge
disable_tlsalpn_challenge
alt_http_port
alt_tlsalpn_port
eab
trusted_roots
dns
propagation_timeout
propagation_delay
dns_ttl
dns_challenge_override_domain
resolvers
preferred_chains`,
};

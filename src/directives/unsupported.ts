/** Directives of a Caddyfile, and of well-known plug-ins, that hubgate lacks, each with what does its work. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  authenticate: 'use forward_auth with a program that signs people in',
  authorize: 'use forward_auth with a program that signs people in, or basic_auth',
  cache: 'put a cache in front of the gateway, or let the app send Cache-Control',
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

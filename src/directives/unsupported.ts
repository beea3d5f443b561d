/** Directives of a Caddyfile that hubgate lacks, each with what to do instead. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  copy_response:
    'a response that reverse_proxy does not handle passes: see header_down, replace_status',
  copy_response_headers: 'use header in handle_response, with {rp.header.Name}',
  invoke: 'use a snippet and import',
  method: 'let the app treat the request',
  metrics: 'metrics are on the admin API, at /metrics',
  push: 'browsers no longer support pushes; send Link: rel=preload with header',
  templates: 'let the app render its pages',
  tracing: 'trace in the app',
};

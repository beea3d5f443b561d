/** Directives of a Caddyfile that hubgate lacks, each with what to do instead. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  method: 'let the app treat the request',
  metrics: 'metrics are on the admin API, at /metrics',
  push: 'browsers no longer support pushes; send Link: rel=preload with header',
  templates: 'let the app render its pages',
  tracing: 'trace in the app',
};

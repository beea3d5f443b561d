/** Directives of a Caddyfile that hubgate lacks, each with what to do instead. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  invoke: 'use a snippet and import',
  log_skip: 'log is said per site: leave it out where nothing is to be logged',
  method: 'let the app treat the request',
  metrics: 'metrics are on the admin API, at /metrics',
  push: 'browsers no longer support pushes; send Link: rel=preload with header',
  skip_log: 'log is said per site: leave it out where nothing is to be logged',
  templates: 'let the app render its pages',
  tracing: 'trace in the app',
};

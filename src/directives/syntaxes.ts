import type { Directive } from '../hubfile/scope.ts';
import { abort } from './abort/syntax.ts';
import { bind } from './bind/syntax.ts';
import { discovery } from './discovery/syntax.ts';
import { encode } from './encode/syntax.ts';
import { error } from './error/syntax.ts';
import { fileServer, root } from './file-server/syntax.ts';
import { forwardAuth } from './forward-auth/syntax.ts';
import { handle, handleErrors, handlePath, route } from './handle/syntax.ts';
import { header, requestHeader } from './header/syntax.ts';
import { hub } from './hub/syntax.ts';
import { mercure } from './mercure/syntax.ts';
import { log } from './log/syntax.ts';
import { redir } from './redir/syntax.ts';
import { requestBody } from './request-body/syntax.ts';
import { respond } from './respond/syntax.ts';
import { reverseProxy } from './reverse-proxy/syntax.ts';
import { rewrite } from './rewrite/syntax.ts';
import { tls } from './tls/syntax.ts';
import { uri } from './uri/syntax.ts';

/**
 * Every directive of a site, in the order in which they run whatever their order in the file
 * (except inside `route`). First those that describe the site and add no step; then what changes
 * requests and responses; the hub, so that headers, redirects and encodings concern it too; then
 * what answers, the most specific first.
 */
export const directives: Readonly<Record<string, Directive>> = {
  bind,
  tls,
  log,
  discovery,
  handle_errors: handleErrors,

  root,
  header,
  request_body: requestBody,
  redir,
  rewrite,
  uri,
  forward_auth: forwardAuth,
  request_header: requestHeader,
  encode,
  hub,
  mercure,
  handle,
  handle_path: handlePath,
  route,
  abort,
  error,
  respond,
  reverse_proxy: reverseProxy,
  file_server: fileServer,
};

/** Directives of a Caddyfile that hubgate lacks, each with what to do instead. */
export const unsupportedDirectives: Readonly<Record<string, string>> = {
  acme_server: 'hubgate issues certificates only to itself; run a certificate authority beside it',
  basic_auth: 'let the app ask for a password, or a service by forward_auth',
  basicauth: 'let the app ask for a password, or a service by forward_auth',
  invoke: 'use a snippet and import',
  log_skip: 'log is said per site: leave it out where nothing is to be logged',
  map: 'use several handle blocks with matchers',
  method: 'let the app treat the request',
  metrics: 'metrics are on the admin API, at /metrics',
  php_fastcgi: 'run the app behind an HTTP server and use reverse_proxy',
  push: 'browsers no longer support pushes; send Link: rel=preload with header',
  skip_log: 'log is said per site: leave it out where nothing is to be logged',
  templates: 'let the app render its pages',
  tracing: 'trace in the app',
  try_files: 'use handle with path matchers, rewrite and file_server',
  vars: 'use placeholders such as {header.NAME} directly',
};

import type { Directive } from '../scope.ts';
import { abort } from './abort.ts';
import { bind } from './bind.ts';
import { discovery } from './discovery.ts';
import { encode } from './encode.ts';
import { error } from './error.ts';
import { fileServer, root } from './files.ts';
import { forwardAuth } from './forward-auth.ts';
import { handle, handleErrors, handlePath, route } from './handle.ts';
import { header, requestHeader } from './headers.ts';
import { hub } from './hub.ts';
import { mercure } from './mercure.ts';
import { log } from './log.ts';
import { redir } from './redir.ts';
import { requestBody } from './request-body.ts';
import { respond } from './respond.ts';
import { reverseProxy } from './reverse-proxy.ts';
import { rewrite } from './rewrite.ts';
import { tls } from './tls.ts';
import { uri } from './uri.ts';

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

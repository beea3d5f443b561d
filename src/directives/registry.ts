import { DirectiveTable, type SyntaxRegistry } from '../hubfile/directive-table.ts';
import { matchers } from '../matchers/registry.ts';
import type { SiteContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';
import { abort } from './abort.ts';
import { bind } from './bind.ts';
import { cache } from './cache.ts';
import { copyResponse } from './copy-response.ts';
import { copyResponseHeaders } from './copy-response-headers.ts';
import { discovery as discoverySyntax } from './discovery/syntax.ts';
import { encode } from './encode.ts';
import { error } from './error.ts';
import { forwardAuth } from './forward-auth.ts';
import { handle } from './handle.ts';
import { handleErrors } from './handle-errors.ts';
import { handlePath } from './handle-path.ts';
import { header } from './header.ts';
import { intercept } from './intercept.ts';
import { invoke } from './invoke.ts';
import { log } from './log.ts';
import { logAppend } from './log-append.ts';
import { logName } from './log-name.ts';
import { logSkip } from './log-skip.ts';
import { map } from './map.ts';
import { mercure } from './mercure.ts';
import { method } from './method.ts';
import { metrics } from './metrics.ts';
import { phpFastcgi } from './php-fastcgi.ts';
import { redir } from './redir.ts';
import { requestBody } from './request-body.ts';
import { requestHeader } from './request-header.ts';
import { respond } from './respond.ts';
import { rewrite } from './rewrite.ts';
import { root } from './root.ts';
import { route } from './route.ts';
import { tryFiles } from './try-files.ts';
import { vars } from './vars.ts';
import { rateLimit } from './rate-limit.ts';
import { basicAuth } from './basic-auth.ts';
import { hub } from './hub.ts';
import { uri } from './uri.ts';
import { fileServer } from './file-server.ts';
import { tls } from './tls.ts';
import { reverseProxy } from './reverse-proxy.ts';

/**
 * All directives, by their names in a Hubfile. The configuration of a directive with a handler has that name
 * as its `kind`, and is a member of the union of all handlers.
 */
export const directives = {
  abort,
  basic_auth: basicAuth,
  bind,
  cache,
  copy_response: copyResponse,
  copy_response_headers: copyResponseHeaders,
  discovery: { syntax: discoverySyntax },
  encode,
  error,
  file_server: fileServer,
  forward_auth: forwardAuth,
  handle,
  handle_errors: handleErrors,
  handle_path: handlePath,
  header,
  hub,
  intercept,
  invoke,
  log,
  mercure,
  log_append: logAppend,
  log_name: logName,
  log_skip: logSkip,
  map,
  method,
  metrics,
  php_fastcgi: phpFastcgi,
  rate_limit: rateLimit,
  redir,
  request_body: requestBody,
  request_header: requestHeader,
  respond,
  reverse_proxy: reverseProxy,
  rewrite,
  root,
  route,
  tls,
  try_files: tryFiles,
  uri,
  vars,
};

type Configurations<Directives> = {
  readonly [Kind in keyof Directives]: Directives[Kind] extends HandlerDirective<infer Config>
    ? Extract<Config, { readonly kind: Kind }>
    : never;
};

export type { HandlerConfig, RouteConfig } from '../config/routes.ts';
export type { RequestMatcher } from '../matchers/registry.ts';

declare module '../config/routes.ts' {
  interface HandlerKinds extends Configurations<typeof directives> {}
}

/** Everything that configurations, Hubfiles and sites need to know about directives and matchers. */
export const registry: SyntaxRegistry & SiteContext['registry'] = { directives, matchers };

/** The directives with their names in a Hubfile. */
export const directiveTable = new DirectiveTable(registry);

import type { HandlerKinds } from '../config/routes.ts';
import { DirectiveTable } from '../hubfile/directive-table.ts';
import { matchers } from '../matchers/registry.ts';
import type { Directive, HandlerDirective } from './directive.ts';
import { abort } from './abort.ts';
import { basicAuth as basicAuthData } from './basic-auth/data.ts';
import { basicAuth as basicAuthHandler } from './basic-auth/handler.ts';
import { basicAuth as basicAuthSyntax } from './basic-auth/syntax.ts';
import { bind } from './bind.ts';
import { discovery as discoverySyntax } from './discovery/syntax.ts';
import { encode } from './encode.ts';
import { error } from './error.ts';
import { fileServer as fileServerData } from './file-server/data.ts';
import { fileServer as fileServerHandler } from './file-server/handler.ts';
import { fileServer as fileServerSyntax } from './file-server/syntax.ts';
import { forwardAuth } from './forward-auth.ts';
import { handle } from './handle.ts';
import { handleErrors } from './handle-errors.ts';
import { handlePath } from './handle-path.ts';
import { header } from './header.ts';
import { hub as hubData } from './hub/data.ts';
import { hub as hubHandler } from './hub/handler.ts';
import { hub as hubSyntax } from './hub/syntax.ts';
import { invoke } from './invoke.ts';
import { log } from './log.ts';
import { logAppend } from './log-append.ts';
import { logName } from './log-name.ts';
import { logSkip } from './log-skip.ts';
import { map } from './map.ts';
import { mercure } from './mercure.ts';
import { phpFastcgi } from './php-fastcgi.ts';
import { rateLimit as rateLimitData } from './rate-limit/data.ts';
import { rateLimit as rateLimitHandler } from './rate-limit/handler.ts';
import { rateLimit as rateLimitSyntax } from './rate-limit/syntax.ts';
import { redir } from './redir.ts';
import { requestBody } from './request-body.ts';
import { requestHeader } from './request-header.ts';
import { respond } from './respond.ts';
import { reverseProxy as reverseProxyData } from './reverse-proxy/data.ts';
import { reverseProxy as reverseProxyHandler } from './reverse-proxy/handler.ts';
import { reverseProxy as reverseProxySyntax } from './reverse-proxy/syntax.ts';
import { rewrite } from './rewrite.ts';
import { root } from './root.ts';
import { route } from './route.ts';
import { tls as tlsSyntax } from './tls/syntax.ts';
import { tryFiles } from './try-files.ts';
import { uri as uriData } from './uri/data.ts';
import { uri as uriHandler } from './uri/handler.ts';
import { uri as uriSyntax } from './uri/syntax.ts';
import { vars } from './vars.ts';

/**
 * Every directive, by its name in a Hubfile. One with a handler has that name as the `kind` of its
 * configuration; a directive that declares a configuration and is missing here does not compile.
 */
export const directives: Readonly<Record<string, Directive>> & {
  readonly [Kind in keyof HandlerKinds]: HandlerDirective<HandlerKinds[Kind]>;
} = {
  abort,
  basic_auth: { data: basicAuthData, syntax: basicAuthSyntax, compile: basicAuthHandler },
  bind,
  discovery: { syntax: discoverySyntax },
  encode,
  error,
  file_server: { data: fileServerData, syntax: fileServerSyntax, compile: fileServerHandler },
  forward_auth: forwardAuth,
  handle,
  handle_errors: handleErrors,
  handle_path: handlePath,
  header,
  hub: { data: hubData, syntax: hubSyntax, compile: hubHandler },
  invoke,
  log,
  mercure,
  log_append: logAppend,
  log_name: logName,
  log_skip: logSkip,
  map,
  php_fastcgi: phpFastcgi,
  rate_limit: { data: rateLimitData, syntax: rateLimitSyntax, compile: rateLimitHandler },
  redir,
  request_body: requestBody,
  request_header: requestHeader,
  respond,
  reverse_proxy: {
    data: reverseProxyData,
    syntax: reverseProxySyntax,
    compile: reverseProxyHandler,
  },
  rewrite,
  root,
  route,
  tls: { syntax: tlsSyntax },
  try_files: tryFiles,
  uri: { data: uriData, syntax: uriSyntax, compile: uriHandler },
  vars,
};

/** All that configurations, Hubfiles and sites need to know of directives and matchers. */
export const registry = { directives, matchers };

/** The directives as a Hubfile names them. */
export const directiveTable = new DirectiveTable(registry);

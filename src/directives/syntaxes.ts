import type { Directive } from '../hubfile/scope.ts';
import type { HandlerKind } from './data.ts';
import { abort } from './abort/syntax.ts';
import { basicAuth } from './basic-auth/syntax.ts';
import { bind } from './bind/syntax.ts';
import { discovery } from './discovery/syntax.ts';
import { encode } from './encode/syntax.ts';
import { error } from './error/syntax.ts';
import { fileServer } from './file-server/syntax.ts';
import { forwardAuth } from './forward-auth/syntax.ts';
import { handle } from './handle/syntax.ts';
import { handleErrors } from './handle-errors/syntax.ts';
import { handlePath } from './handle-path/syntax.ts';
import { header } from './header/syntax.ts';
import { hub } from './hub/syntax.ts';
import { invoke } from './invoke/syntax.ts';
import { log } from './log/syntax.ts';
import { mercure } from './mercure/syntax.ts';
import { logAppend } from './log-append/syntax.ts';
import { logName } from './log-name/syntax.ts';
import { logSkip } from './log-skip/syntax.ts';
import { map } from './map/syntax.ts';
import { phpFastcgi } from './php-fastcgi/syntax.ts';
import { rateLimit } from './rate-limit/syntax.ts';
import { redir } from './redir/syntax.ts';
import { requestBody } from './request-body/syntax.ts';
import { requestHeader } from './request-header/syntax.ts';
import { respond } from './respond/syntax.ts';
import { reverseProxy } from './reverse-proxy/syntax.ts';
import { rewrite } from './rewrite/syntax.ts';
import { root } from './root/syntax.ts';
import { route } from './route/syntax.ts';
import { tls } from './tls/syntax.ts';
import { tryFiles } from './try-files/syntax.ts';
import { uri } from './uri/syntax.ts';
import { vars } from './vars/syntax.ts';

/** How every directive is written: one whose data is registered and that is forgotten here does not compile. */
export const directives: Readonly<Record<string, Directive>> &
  Readonly<Record<HandlerKind, Directive>> = {
  abort,
  basic_auth: basicAuth,
  bind,
  discovery,
  encode,
  error,
  file_server: fileServer,
  forward_auth: forwardAuth,
  handle,
  handle_errors: handleErrors,
  handle_path: handlePath,
  header,
  hub,
  invoke,
  log,
  mercure,
  log_append: logAppend,
  log_name: logName,
  log_skip: logSkip,
  map,
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

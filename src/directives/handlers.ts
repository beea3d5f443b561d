import { abort } from './abort/handler.ts';
import { basicAuth } from './basic-auth/handler.ts';
import { encode } from './encode/handler.ts';
import { error } from './error/handler.ts';
import { fileServer } from './file-server/handler.ts';
import { forwardAuth } from './forward-auth/handler.ts';
import { handle } from './handle/handler.ts';
import { header } from './header/handler.ts';
import { hub } from './hub/handler.ts';
import { logAppend } from './log-append/handler.ts';
import { logName } from './log-name/handler.ts';
import { logSkip } from './log-skip/handler.ts';
import { map } from './map/handler.ts';
import { rateLimit } from './rate-limit/handler.ts';
import { redir } from './redir/handler.ts';
import { requestBody } from './request-body/handler.ts';
import { requestHeader } from './request-header/handler.ts';
import { respond } from './respond/handler.ts';
import { reverseProxy } from './reverse-proxy/handler.ts';
import { rewrite } from './rewrite/handler.ts';
import { root } from './root/handler.ts';
import { route } from './route/handler.ts';
import { tryFiles } from './try-files/handler.ts';
import { uri } from './uri/handler.ts';
import { vars } from './vars/handler.ts';
import type { HandlerConfig, HandlerKind } from './data.ts';
import type { CompileHandler } from './handler-context.ts';

/** What every directive with data does: one that is forgotten here does not compile. */
export const handlers: {
  readonly [Kind in HandlerKind]: CompileHandler<Extract<HandlerConfig, { kind: Kind }>>;
} = {
  abort,
  basic_auth: basicAuth,
  encode,
  error,
  file_server: fileServer,
  forward_auth: forwardAuth,
  handle,
  header,
  hub,
  log_append: logAppend,
  log_name: logName,
  log_skip: logSkip,
  map,
  rate_limit: rateLimit,
  redir,
  request_body: requestBody,
  request_header: requestHeader,
  respond,
  reverse_proxy: reverseProxy,
  rewrite,
  root,
  route,
  try_files: tryFiles,
  uri,
  vars,
};

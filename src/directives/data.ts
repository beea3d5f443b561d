import type { HandlerData } from '../config/handler-data.ts';
import { abort } from './abort/data.ts';
import { basicAuth } from './basic-auth/data.ts';
import { encode } from './encode/data.ts';
import { error } from './error/data.ts';
import { fileServer } from './file-server/data.ts';
import { forwardAuth } from './forward-auth/data.ts';
import { handle } from './handle/data.ts';
import { header } from './header/data.ts';
import { hub } from './hub/data.ts';
import { logAppend } from './log-append/data.ts';
import { logName } from './log-name/data.ts';
import { logSkip } from './log-skip/data.ts';
import { map } from './map/data.ts';
import { rateLimit } from './rate-limit/data.ts';
import { redir } from './redir/data.ts';
import { requestBody } from './request-body/data.ts';
import { requestHeader } from './request-header/data.ts';
import { respond } from './respond/data.ts';
import { reverseProxy } from './reverse-proxy/data.ts';
import { rewrite } from './rewrite/data.ts';
import { root } from './root/data.ts';
import { route } from './route/data.ts';
import { tryFiles } from './try-files/data.ts';
import { uri } from './uri/data.ts';
import { vars } from './vars/data.ts';

/** What the configuration of every handler is, by its `kind`. */
export const handlerData = {
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

type Registry = typeof handlerData;

export type HandlerKind = keyof Registry;

/** What a route does: the union of what is registered above. */
export type HandlerConfig = {
  [Kind in HandlerKind]: Registry[Kind] extends HandlerData<infer Handler> ? Handler : never;
}[HandlerKind];

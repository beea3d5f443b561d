import type { MatchCondition } from '../config/config.ts';
import type { ConditionSyntax } from '../hubfile/condition-syntax.ts';
import type { ConditionKind } from './data.ts';
import { errorStatus } from './error-status/syntax.ts';
import { file } from './file/syntax.ts';
import * as request from './request/syntax.ts';
import { varsRegexp } from './vars-regexp/syntax.ts';
import { vars } from './vars/syntax.ts';

/** How every condition is written: one that is forgotten here does not compile. */
export const conditions: {
  readonly [Kind in ConditionKind]: ConditionSyntax<Extract<MatchCondition, { kind: Kind }>>;
} = {
  client_ip: request.clientIp,
  error_status: errorStatus,
  file,
  header: request.header,
  header_regexp: request.headerRegexp,
  host: request.host,
  method: request.method,
  not: request.not,
  path: request.path,
  path_regexp: request.pathRegexp,
  protocol: request.protocol,
  query: request.query,
  remote_ip: request.remoteIp,
  vars,
  vars_regexp: varsRegexp,
};

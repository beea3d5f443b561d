import type { MatchCondition } from '../config/config.ts';
import type { CompileCondition } from '../site/predicate.ts';
import type { ConditionKind } from './data.ts';
import { errorStatus } from './error-status/predicate.ts';
import { file } from './file/predicate.ts';
import * as request from './request/predicate.ts';
import { varsRegexp } from './vars-regexp/predicate.ts';
import { vars } from './vars/predicate.ts';

/** What every condition tests: one that is forgotten here does not compile. */
export const predicates: {
  readonly [Kind in ConditionKind]: CompileCondition<Extract<MatchCondition, { kind: Kind }>>;
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

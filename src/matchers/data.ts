import type { ConditionData } from '../config/condition-data.ts';
import { errorStatus } from './error-status/data.ts';
import { file } from './file/data.ts';
import * as request from './request/data.ts';
import { varsRegexp } from './vars-regexp/data.ts';
import { vars } from './vars/data.ts';

/** What the configuration of every condition is, by its `kind`. */
export const conditionData = {
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

type Registry = typeof conditionData;

export type ConditionKind = keyof Registry;

/** One condition of a matcher: the union of what is registered above. */
export type MatchCondition = {
  [Kind in ConditionKind]: Registry[Kind] extends ConditionData<infer Condition>
    ? Condition
    : never;
}[ConditionKind];

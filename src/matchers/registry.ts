import { expression, not } from './compound.ts';
import { clientIp, protocol, remoteIp } from './connection.ts';
import { header, headerRegexp } from './fields.ts';
import { file } from './file.ts';
import type { Matcher } from './matcher.ts';
import { host, method, path, pathRegexp, query } from './request-line.ts';
import { errorStatus, vars, varsRegexp } from './vars.ts';

/** All conditions, by their names in a Hubfile, which are their `kind` in the configuration. */
export const matchers = {
  client_ip: clientIp,
  error_status: errorStatus,
  expression,
  file,
  header,
  header_regexp: headerRegexp,
  host,
  method,
  not,
  path,
  path_regexp: pathRegexp,
  protocol,
  query,
  remote_ip: remoteIp,
  vars,
  vars_regexp: varsRegexp,
};

type Conditions<Matchers> = {
  readonly [Kind in keyof Matchers]: Matchers[Kind] extends Matcher<infer Condition>
    ? Extract<Condition, { readonly kind: Kind }>
    : never;
};

export type { RequestMatcher } from '../config/routes.ts';

declare module '../config/routes.ts' {
  interface ConditionKinds extends Conditions<typeof matchers> {}
}

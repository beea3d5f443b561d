import { errorStatus } from './error-status.ts';
import { expression } from './expression.ts';
import { file } from './file.ts';
import type { Matcher } from './matcher.ts';
import * as data from './request/data.ts';
import * as predicates from './request/predicate.ts';
import * as syntax from './request/syntax.ts';
import { vars, varsRegexp } from './vars.ts';

/** All conditions, by their names in a Hubfile, which are their `kind` in the configuration. */
export const matchers = {
  client_ip: { data: data.clientIp, syntax: syntax.clientIp, compile: predicates.clientIp },
  error_status: errorStatus,
  expression,
  file,
  header: { data: data.header, syntax: syntax.header, compile: predicates.header },
  header_regexp: {
    data: data.headerRegexp,
    syntax: syntax.headerRegexp,
    compile: predicates.headerRegexp,
  },
  host: { data: data.host, syntax: syntax.host, compile: predicates.host },
  method: { data: data.method, syntax: syntax.method, compile: predicates.method },
  not: { data: data.not, syntax: syntax.not, compile: predicates.not },
  path: { data: data.path, syntax: syntax.path, compile: predicates.path },
  path_regexp: {
    data: data.pathRegexp,
    syntax: syntax.pathRegexp,
    compile: predicates.pathRegexp,
  },
  protocol: { data: data.protocol, syntax: syntax.protocol, compile: predicates.protocol },
  query: { data: data.query, syntax: syntax.query, compile: predicates.query },
  remote_ip: { data: data.remoteIp, syntax: syntax.remoteIp, compile: predicates.remoteIp },
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

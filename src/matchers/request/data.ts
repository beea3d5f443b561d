import type { ConditionData, RequestMatcher } from '../../config/routes.ts';
import { list, object, optional, withDefault } from '../../config/shape.ts';
import { isGlob } from '../../kernel/glob.ts';
import { addressRange, headerName } from '../../config/shape-options.ts';
import { name, oneOf, text } from '../../config/shape-values.ts';
import { lowerCaseHost } from '../../config/well-formed.ts';

export interface PathCondition {
  readonly kind: 'path';
  readonly paths: readonly string[];
}

export interface PathRegexpCondition {
  readonly kind: 'path_regexp';
  readonly name: string | null;
  readonly pattern: string;
}

export interface HostCondition {
  readonly kind: 'host';
  readonly hosts: readonly string[];
}

export interface MethodCondition {
  readonly kind: 'method';
  readonly methods: readonly string[];
}

export interface HeaderCondition {
  readonly kind: 'header';
  readonly name: string;
  readonly values: readonly string[];
}

export interface HeaderRegexpCondition {
  readonly kind: 'header_regexp';
  readonly name: string | null;
  readonly header: string;
  readonly pattern: string;
}

export interface QueryCondition {
  readonly kind: 'query';
  readonly name: string;
  readonly values: readonly string[];
}

export interface ProtocolCondition {
  readonly kind: 'protocol';
  readonly protocol: string;
}

export interface RemoteIpCondition {
  readonly kind: 'remote_ip';
  readonly ranges: readonly string[];
}

export interface ClientIpCondition {
  readonly kind: 'client_ip';
  readonly ranges: readonly string[];
}

export interface NotCondition {
  readonly kind: 'not';
  readonly matchers: readonly RequestMatcher[];
}

export const PROTOCOLS = [
  'http',
  'https',
  'grpc',
  'http/1.0',
  'http/1.0+',
  'http/1.1',
  'http/1.1+',
  'http/2',
  'http/2+',
  // No request has it, but a Caddyfile may ask.
  'http/3',
  'http/3+',
] as const;

/** Whether it can be a path, or a pattern of paths. */
export function isPathPattern(text: string): boolean {
  return /^[/*{]/.test(text) && text.split(/(?<!\\)\{[^{}]*\}/).every(isGlob);
}

const some = { min: 1 };
const pattern = text('a regular expression');
const capture = optional(name('a name for the captured groups'));
const ranges = list(addressRange, some);

export const path: ConditionData<PathCondition> = {
  shape: () =>
    object({
      paths: list(text('a path that begins with / or *', isPathPattern), some),
    }),
};

export const pathRegexp: ConditionData<PathRegexpCondition> = {
  shape: () => object({ name: capture, pattern }),
};

export const host: ConditionData<HostCondition> = {
  shape: () =>
    object({
      hosts: list(
        text('a host in lower case', (each) => each !== '' && each === lowerCaseHost(each)),
        some,
      ),
    }),
};

export const method: ConditionData<MethodCondition> = {
  shape: () =>
    object({
      methods: list(
        text('a method in upper case', (each) => /^[A-Z0-9!#$%&'*+\-.^_|~]+$/.test(each)),
        some,
      ),
    }),
};

export const header: ConditionData<HeaderCondition> = {
  shape: () => object({ name: headerName, values: withDefault(list(text('a value')), []) }),
};

export const headerRegexp: ConditionData<HeaderRegexpCondition> = {
  shape: () => object({ name: capture, header: headerName, pattern }),
};

export const query: ConditionData<QueryCondition> = {
  shape: () => object({ name: text('the name of a parameter'), values: list(text('a value')) }),
};

export const protocol: ConditionData<ProtocolCondition> = {
  shape: () => object({ protocol: oneOf<string>(...PROTOCOLS) }),
};

export const remoteIp: ConditionData<RemoteIpCondition> = { shape: () => object({ ranges }) };

export const clientIp: ConditionData<ClientIpCondition> = { shape: () => object({ ranges }) };

export const not: ConditionData<NotCondition> = {
  shape: (inner) => object({ matchers: list(inner, some) }),
  nested: ({ matchers }) => matchers,
};

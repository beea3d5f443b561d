import { handlerData } from '../directives/data.ts';
import type { HandlerConfig, MatchCondition, RequestMatcher, RouteConfig } from './config.ts';
import { addressRange, headerName } from './shape-options.ts';
import { byKind, type KindShapes, later, list, nullable, object, type Shape } from './shape.ts';
import { name, oneOf, text } from './shape-values.ts';

const PROTOCOLS = ['http', 'https', 'grpc', 'http/1.0', 'http/1.1', 'http/2', 'http/2+'] as const;

const some = { min: 1 };
const regexp = text('a regular expression');
const capture = nullable(name('a name for what the groups capture'));
const ranges = object({ ranges: list(addressRange, some) });

const condition: Shape<MatchCondition> = byKind<MatchCondition>({
  path: object({
    paths: list(
      text('a path that begins with / or *', (path) => /^[/*{]/.test(path)),
      some,
    ),
  }),
  path_regexp: object({ name: capture, pattern: regexp }, { name: null }),
  host: object({
    hosts: list(
      text('a host in lower case', (host) => host !== '' && host === host.toLowerCase()),
      some,
    ),
  }),
  method: object({
    methods: list(
      text('a method in upper case', (method) => /^[A-Z0-9!#$%&'*+\-.^_|~]+$/.test(method)),
      some,
    ),
  }),
  header: object({ name: headerName, values: list(text('a value')) }, { values: [] }),
  header_regexp: object({ name: capture, header: headerName, pattern: regexp }, { name: null }),
  query: object({ name: name('the name of a parameter'), values: list(text('a value'), some) }),
  protocol: object({ protocol: oneOf<string>(...PROTOCOLS) }),
  remote_ip: ranges,
  client_ip: ranges,
  not: object({
    matchers: list(
      later(() => matcher),
      some,
    ),
  }),
});

const matcher: Shape<RequestMatcher> = list(condition);

/** Who a route concerns; null for everybody. */
export const matcherShape: Shape<RequestMatcher | null> = nullable(matcher);

/** The steps of a site, in the order in which they run. */
export const routesShape: Shape<readonly RouteConfig[]> = list(
  object({ matcher: matcherShape, handler: later(() => handler) }, { matcher: null }),
);

const shapes = Object.entries(handlerData).map(([kind, { shape }]) => [kind, shape(routesShape)]);
// Each description gives the shape of its own kind, which the entries of an object do not tell.
const handler = byKind<HandlerConfig>(Object.fromEntries(shapes) as KindShapes<HandlerConfig>);

import type { HandlerConfig, MatchCondition, RequestMatcher, RouteConfig } from './config.ts';
import { addressRange, headerName } from './shape-options.ts';
import { headerOperation, headerValue, reverseProxyShape } from './shape-proxy.ts';
import { byKind, later, list, nullable, object, type Shape } from './shape.ts';
import { count, flag, name, oneOf, size, text } from './shape-values.ts';

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

const target = text('a path or a query', (to) => /^[/?{]/.test(to));
const directory = name('a directory');
const inner = later(() => routesShape);
const operations = object({ operations: list(headerOperation, some) });

const handler: Shape<HandlerConfig> = byKind<HandlerConfig>({
  hub: object({}),
  reverse_proxy: reverseProxyShape(inner),
  respond: object(
    { status: nullable(count({ min: 200, max: 599 })), body: text('a text'), close: flag },
    { status: null, body: '', close: false },
  ),
  redir: object({ to: headerValue, status: count({ min: 300, max: 399 }) }, { status: 302 }),
  header: operations,
  request_header: operations,
  encode: object(
    { encodings: list(oneOf('gzip', 'br', 'zstd'), some), minimumLength: size() },
    { encodings: ['br', 'gzip'], minimumLength: 512 },
  ),
  rewrite: object({ to: target }),
  uri: object(
    {
      operation: oneOf('strip_prefix', 'strip_suffix', 'replace'),
      text: name('a text'),
      replacement: text('a text'),
      limit: count(),
    },
    { replacement: '', limit: 0 },
  ),
  handle: object({ group: count(), routes: inner }, { group: 0 }),
  route: object({ routes: inner }),
  root: object({ path: directory }),
  file_server: object(
    {
      root: nullable(directory),
      index: list(name('a file name')),
      hide: list(name('a file name or path')),
    },
    { root: null, index: ['index.html'], hide: [] },
  ),
  forward_auth: object(
    {
      proxy: byKind({ reverse_proxy: reverseProxyShape(inner) }),
      uri: name('a path'),
      copyHeaders: list(object({ from: headerName, to: headerName })),
    },
    { copyHeaders: [] },
  ),
  request_body: object({ maxSize: size() }),
  abort: object({}),
  error: object(
    { status: count({ min: 400, max: 599 }), message: text('a text') },
    { status: 500, message: '' },
  ),
});

/** The steps of a site, in the order in which they run. */
export const routesShape: Shape<readonly RouteConfig[]> = list(
  object({ matcher: matcherShape, handler }, { matcher: null }),
);

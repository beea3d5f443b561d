import { everyRoute, type RouteConfig } from '../config/routes.ts';
import { didYouMean } from '../config/problem.ts';
import { isHeaderName, isRewriteTarget, PRIVATE_RANGES } from '../config/well-formed.ts';
import { Secret } from '../kernel/secret.ts';
import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { type Scope, oneStep } from '../hubfile/scope.ts';
import {
  badValue,
  count,
  duration,
  headerName,
  headerOperation,
  headerValue,
  name,
  type OptionReaders,
  optionsOf,
  optionsOfPart,
  ranges,
  size,
  statusClasses,
  matching,
  within,
} from '../hubfile/values.ts';
import { dynamicUpstreams } from './reverse-proxy/dynamic.ts';
import { responseRules } from './intercept.ts';
import { ResponseMatchers } from '../hubfile/named-matchers.ts';
import { proxyTransport } from './reverse-proxy/transport.ts';
import { hasRequestPlaceholder, RequestUpstreams } from './reverse-proxy/request-upstreams.ts';
import { type TransportWords, upstreamsOf } from './reverse-proxy/upstreams.ts';
import {
  activeHealthMembers,
  type BalancingPolicy,
  defaultActiveHealth,
  defaultReverseProxy,
  isAllowedUpstream,
  MAX_BUFFER,
  MAX_WEIGHT,
  passiveHealthMembers,
  POLICIES_WITHOUT_SETTINGS,
  retryMembers,
  type ReverseProxyConfig,
} from '../proxy/proxy-config.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import type { Authorization } from '../proxy/response.ts';
import { ReverseProxy, type ReverseProxyOptions } from '../proxy/reverse-proxy.ts';
import { compileMatcher } from '../site/text-pattern.ts';
import { rewrittenTarget } from '../site/rewritten-target.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { reverseProxy as data } from './reverse-proxy/data.ts';
import type { HandlerDirective } from './directive.ts';

const USAGE = `
reverse_proxy [<matcher>] [<upstream…>] {
    to <upstream…>
    upstreams_allow <host|range…>
    dynamic a [<name> <port>] {
        name <name>
        port <port>
        versions ipv4|ipv6…
        refresh <duration>
        resolvers <address…>
        dial_timeout <duration>
        grace_period <duration>
    }
    dynamic srv [<name>] {
        service <service>
        proto <protocol>
        name <name>
        refresh <duration>
        resolvers <address…>
        dial_timeout <duration>
        grace_period <duration>
    }
    lb_policy random|round_robin|least_conn|first|ip_hash|client_ip_hash|uri_hash
    lb_policy weighted_round_robin <weight…>
    lb_policy random_choose <n>
    lb_policy header <field>
    lb_policy query <name>
    lb_policy cookie [<name> [<secret>]]
    lb_try_duration <duration>
    lb_try_interval <duration>
    lb_retries <n>
    lb_retry_match <condition>|{ <conditions…> }
    health_uri <uri>
    health_port <port>
    health_interval <duration>
    health_timeout <duration>
    health_status <status>
    health_body <pattern>
    health_method <method>
    health_fails <n>
    health_passes <n>
    health_headers { <field> <value> }
    fail_duration <duration>
    max_fails <n>
    unhealthy_status <status…>
    unhealthy_latency <duration>
    unhealthy_request_count <n>
    method <method>
    rewrite <to>
    header_up [+|-]<field> [<value>|<find>] [<replace>]
    header_down [+|-|?]<field> [<value>|<find>] [<replace>]
    request_buffers <size>
    response_buffers <size>
    flush_interval <duration>
    stream_timeout <duration>
    stream_close_delay <duration>
    trusted_proxies <ranges…>|private_ranges
    transport http {
        dial_timeout <duration>
        response_header_timeout <duration>
        read_timeout <duration>
        write_timeout <duration>
        keepalive off|<duration>
        max_conns_per_host <n>
        versions <1.1|2|h2c…>
        tls
        tls_insecure_skip_verify
        tls_server_name <name>
        tls_trust_pool <pem file…>
    }
    transport fastcgi {
        root <directory>
        resolve_root_symlink
        split <end…>
        env <name> <value>
        dial_timeout <duration>
        response_header_timeout <duration>
        read_timeout <duration>
        write_timeout <duration>
    }
    @name status <status…>
    @name header <field> [<value>]
    replace_status [@name] <status>
    handle_response [@name] { <directives…> }
}
`;

export const reverseProxy: HandlerDirective<ReverseProxyConfig> = {
  data,
  syntax: {
    usage: USAGE,
    summary: 'forwards to one or several upstreams',
    read: oneStep((cursor, scope) => proxySettings(cursor, scope)),
  },
  /**
   * Forwards requests to upstreams, whose state outlives the configuration.
   *
   * @throws HubgateError `invalid-upstream`, `invalid-pattern`, `unreadable-trust-pool`
   */
  compile(config, context) {
    return context.besidePages(compileProxy(config, context, null));
  },
};

/** Upstreams are kept as words, because `transport http { tls }` determines their scheme. */
interface Draft extends ReverseProxyConfig, TransportWords {
  readonly to: readonly { readonly cursor: Cursor; readonly words: ReturnType<Cursor['rest']> }[];
}

/** Options that a directive has besides those of `reverse_proxy`. */
interface OwnOptions {
  readonly names: readonly string[];
  /** Returns false for an option of `reverse_proxy`. */
  readonly read: (option: Cursor) => boolean;
}

/** Reads the upstreams and options of `reverse_proxy`, and of directives that contain one. */
export function proxySettings(
  cursor: Cursor,
  scope: Scope,
  own: OwnOptions = { names: [], read: () => false },
): ReverseProxyConfig {
  const responses = new ResponseMatchers();
  for (const line of cursor.line.block ?? []) responses.defineIfNamed(cursor, line);
  const start: Draft = {
    ...defaultReverseProxy,
    to: [{ cursor, words: cursor.rest() }],
    tls: false,
    h2c: false,
  };
  const rules = responseRules(scope, responses);
  const options: OptionTable<Draft> = {
    ...OPTIONS,
    handle_response: rules.handle_response,
    lb_retry_match: (option, { loadBalancing }) => ({
      loadBalancing: {
        ...loadBalancing,
        retryMatch: [...(loadBalancing.retryMatch ?? []), scope.conditions(option)],
      },
    }),
    replace_status: rules.replace_status,
  };
  const read = cursor.options(start, options, {
    repeatable: [
      'lb_retry_match',
      'to',
      'header_up',
      'header_down',
      'handle_response',
      'replace_status',
    ],
    unsupported: UNSUPPORTED,
    other: (option) => option.name.startsWith('@') || own.read(option),
    otherNames: own.names,
  });
  const { to, tls, h2c, ...settings } = read;
  cursor.origins.follow(settings, read);
  const upstreams = upstreamsOf(to, { tls, h2c });
  const dynamic = withScheme(cursor, settings.dynamic, { tls, h2c });
  const names = cursor.line.block?.map(({ words }) => words[0]?.text) ?? [];
  if (dynamic === null && upstreams.length === 0 && (to.length > 1 || names.includes('dynamic'))) {
    // The invalid line that names them has been reported.
    return settings;
  }
  if (dynamic === null && upstreams.length === 0) {
    const hint = cursor.line.words[1]?.text.startsWith('/')
      ? 'a path is read as a matcher; a socket is unix//run/app.sock'
      : `for example ${cursor.name} localhost:3000`;
    cursor.fail(cursor.span, 'expected-argument', `${cursor.name} needs an upstream`, hint);
  }
  const proxy = { ...settings, upstreams, dynamic };
  cursor.origins.follow(proxy, settings);
  return proxy;
}

/** The DNS does not contain a scheme, so the transport determines it. */
function withScheme(
  cursor: Cursor,
  dynamic: ReverseProxyConfig['dynamic'],
  { tls, h2c }: TransportWords,
): ReverseProxyConfig['dynamic'] {
  if (dynamic === null || !(tls || h2c)) return dynamic;
  const found = { ...dynamic, scheme: tls ? 'https' : 'h2c' } as const;
  cursor.origins.follow(found, dynamic);
  return found;
}

const HEALTH: OptionReaders<typeof defaultActiveHealth> = {
  ...optionsOf(activeHealthMembers, { headers: null }),
  uri: (cursor) => ({ uri: healthUri(cursor) }),
  body: (cursor) => {
    const pattern = cursor.argument('a pattern in RE2 syntax').text;
    return { body: cursor.origins.of(cursor.span, { pattern }) };
  },
  method: (cursor) => ({ method: methodName(cursor) }),
  headers: (cursor) => ({ headers: healthHeaders(cursor) }),
};

const OPTIONS: OptionTable<Draft> = {
  to: (cursor, sofar) => ({ to: [...sofar.to, { cursor, words: cursor.several('an upstream') }] }),
  upstreams_allow: (cursor) => ({
    upstreamsAllow: cursor.several('a host or an address range').flatMap((word) => {
      if (word.text === 'private_ranges') return PRIVATE_RANGES;
      return isAllowedUpstream(word.text)
        ? [word.text]
        : badValue(cursor, word, 'a host such as *.internal or app:8080, or an address range');
    }),
  }),
  lb_policy: (cursor, { loadBalancing }) => ({
    loadBalancing: { ...loadBalancing, policy: balancingPolicy(cursor) },
  }),
  ...optionsOfPart(
    'loadBalancing',
    defaultReverseProxy.loadBalancing,
    optionsOf(retryMembers),
    'lb_',
  ),
  ...optionsOfPart('activeHealth', defaultActiveHealth, HEALTH, 'health_'),
  ...optionsOfPart('passiveHealth', defaultReverseProxy.passiveHealth, {
    ...optionsOf(passiveHealthMembers),
    unhealthy_status: (cursor) => ({ unhealthyStatus: statusClasses(cursor) }),
  }),
  method: (cursor) => ({ method: methodName(cursor) }),
  rewrite: (cursor) => ({ rewrite: matching(cursor, 'a path or a query', isRewriteTarget) }),
  header_up: (cursor, sofar) => ({
    headerUp: [...sofar.headerUp, headerOperation(cursor, 'request')],
  }),
  header_down: (cursor, sofar) => ({
    headerDown: [...sofar.headerDown, headerOperation(cursor, 'response')],
  }),
  request_buffers: (cursor) => ({ requestBuffers: bufferSize(cursor) }),
  response_buffers: (cursor) => ({ responseBuffers: bufferSize(cursor) }),
  flush_interval: (cursor) => ({ flushIntervalMs: flushInterval(cursor) }),
  stream_timeout: (cursor) => ({ streamTimeoutMs: duration(cursor) }),
  stream_close_delay: (cursor) => ({ streamCloseDelayMs: duration(cursor) }),
  trusted_proxies: (cursor) => ({ trustedProxies: ranges(cursor) }),
  dynamic: (cursor) => ({ dynamic: dynamicUpstreams(cursor) }),
  transport: (cursor, sofar) => proxyTransport(cursor, sofar),
};

const UNSUPPORTED: Readonly<Record<string, string>> = {
  health_path: 'use health_uri',
  health_upstream: 'use health_port',
  health_request_body: 'use health_uri and health_method',
  health_follow_redirects: 'a redirect counts as unhealthy: write its target in health_uri',
  buffer_requests: 'use request_buffers',
  buffer_responses: 'use response_buffers',
  max_buffer_size: 'use request_buffers and response_buffers',
  verbose_logs: 'hubgate logs each failed attempt that another upstream answered',
};

function bufferSize(cursor: Cursor): number {
  return within(cursor, size, (bytes) => bytes <= MAX_BUFFER, 'a size of at most 16MiB');
}

function balancingPolicy(cursor: Cursor): BalancingPolicy {
  const policy = namedPolicy(cursor);
  const unsupported = {
    fallback:
      'a request without the field, parameter or cookie goes to any available upstream; use a matcher and another reverse_proxy for such requests',
    max_age: 'the cookie lasts for the session of the browser',
  };
  cursor.options({}, {}, { unsupported });
  return policy;
}

function namedPolicy(cursor: Cursor): BalancingPolicy {
  const word = cursor.argument('a policy');
  const kind = POLICIES_WITHOUT_SETTINGS.find((one) => one === word.text);
  if (kind !== undefined) return { kind };
  switch (word.text) {
    case 'weighted_round_robin': {
      const weights = [count(cursor, { max: MAX_WEIGHT })];
      while (cursor.left > 0) weights.push(count(cursor, { max: MAX_WEIGHT }));
      return { kind: 'weighted_round_robin', weights };
    }
    case 'random_choose':
      return { kind: 'random_choose', choices: cursor.left > 0 ? count(cursor, { min: 2 }) : 2 };
    case 'query':
      return { kind: 'query', name: name(cursor, 'the name of a parameter') };
    case 'header':
      return { kind: 'header', name: headerName(cursor, cursor.argument('a header field')) };
    case 'cookie': {
      const cookie = cursor.left > 0 ? name(cursor, 'the name of a cookie') : 'lb';
      const secret = cursor.optional();
      return {
        kind: 'cookie',
        name: cookie,
        secret: secret === undefined ? null : new Secret(secret.text),
      };
    }
    default: {
      const hint = didYouMean(word.text, POLICIES) ?? `known are ${POLICIES.join(', ')}`;
      return cursor.fail(word.span, 'bad-value', `unknown policy ${cursor.quote(word)}`, hint);
    }
  }
}

const POLICIES = [
  ...POLICIES_WITHOUT_SETTINGS,
  'weighted_round_robin',
  'random_choose',
  'header',
  'query',
  'cookie',
];

function healthUri(cursor: Cursor): string {
  return matching(cursor, 'a path', (text) => text.startsWith('/'), 'a path such as /health');
}

function methodName(cursor: Cursor): string {
  return matching(cursor, 'a method such as GET', isHeaderName, 'a method').toUpperCase();
}

function healthHeaders(cursor: Cursor): { readonly name: string; readonly value: string }[] {
  cursor.block();
  return cursor.lines().flatMap((line) => {
    const field = line.line.words[0];
    const read = (): { name: string; value: string } | undefined => {
      if (field === undefined) return undefined;
      const value = headerValue(line, line.argument('a value'));
      line.end();
      return { name: headerName(line, field), value };
    };
    return line.problems.attempt(read) ?? [];
  });
}

/** Caddy's -1 means "at once", which is hubgate's only behaviour. */
function flushInterval(cursor: Cursor): number {
  if (cursor.peek()?.text !== '-1') return duration(cursor);
  cursor.optional();
  return -1;
}

/**
 * The same for what is not a page of the site.
 *
 * @param authorization null: the proxy serves what its upstreams answer
 */
export function compileProxy(
  config: ReverseProxyConfig,
  context: HandlerContext,
  authorization: Authorization | null,
): Handler {
  const { rewrite } = config;
  const target = rewrite === null ? null : rewrittenTarget(rewrite, context.expandOrEmpty);
  const copiesResponse = (routes: readonly RouteConfig[]): boolean =>
    everyRoute(routes, context.registry).some(({ handler }) => handler.kind === 'copy_response');
  const retried = config.loadBalancing.retryMatch?.map((matcher) =>
    compileMatcher(matcher, context.registry.matchers, context.hidesFile),
  );
  const mayRetry =
    retried === undefined
      ? null
      : async (exchange: Exchange): Promise<boolean> => {
          for (const matches of retried) if (await matches(exchange)) return true;
          return false;
        };
  const options: ReverseProxyOptions = {
    ...context,
    registry: context.upstreams,
    ...{ target, copiesResponse, mayRetry, authorization },
    // Each client is judged for itself.
    sharing: authorization === null ? context.sharing : null,
  };
  const proxy = config.upstreams.some(hasRequestPlaceholder)
    ? new RequestUpstreams(
        config,
        context.expand,
        (upstreams) => new ReverseProxy({ ...config, upstreams }, options),
      )
    : new ReverseProxy(config, options);
  context.defer(() => proxy.close());
  return proxy.handle;
}

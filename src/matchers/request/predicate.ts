import { compileWildcard } from '../../http/wildcard.ts';
import { addressSet } from '../../http/forwarded.ts';
import { fieldUtf8 } from '../../http/header-list.ts';
import { decodePath, matchedPath } from '../../http/request-path.ts';
import { capturing } from '../../site/capture.ts';
import { hostname, queryOf } from '../../site/placeholders.ts';
import { allHold, type CompileMatcher, negated, type Predicate } from '../../site/predicate.ts';
import type {
  PathCondition,
  PathRegexpCondition,
  HostCondition,
  MethodCondition,
  HeaderCondition,
  HeaderRegexpCondition,
  QueryCondition,
  ProtocolCondition,
  RemoteIpCondition,
  ClientIpCondition,
  NotCondition,
} from './data.ts';

export function path(condition: PathCondition): Predicate {
  const wanted = condition.paths.map((path) => pathLike(decodePath(path)));
  return (exchange) => {
    const path = matchedPath(exchange).toLowerCase();
    return wanted.some((matches) => matches(path));
  };
}

export function pathRegexp(condition: PathRegexpCondition): Predicate {
  const capture = capturing(condition.pattern, condition.name);
  return (exchange) => capture(matchedPath(exchange), exchange);
}

export function host(condition: HostCondition): Predicate {
  const wanted = condition.hosts.map(hostPattern);
  return (exchange) => {
    const host = hostname(exchange.host);
    return wanted.some((matches) => matches(host));
  };
}

export function method(condition: MethodCondition): Predicate {
  const methods = new Set(condition.methods.map((method) => method.toUpperCase()));
  return (exchange) => methods.has(exchange.method);
}

export function header(condition: HeaderCondition): Predicate {
  return compileHeader(condition.name, condition.values);
}

export function headerRegexp(condition: HeaderRegexpCondition): Predicate {
  const capture = capturing(condition.pattern, condition.name);
  return (exchange) =>
    exchange.headers
      .getAll(condition.header)
      .some((value) => capture(fieldUtf8(value) ?? value, exchange));
}

export function query(condition: QueryCondition): Predicate {
  return compileQuery(condition.name, condition.values);
}

export function protocol(condition: ProtocolCondition): Predicate {
  return compileProtocol(condition.protocol);
}

export function remoteIp(condition: RemoteIpCondition): Predicate {
  const contains = addressSet(condition.ranges);
  return (exchange) => contains(exchange.remoteAddress);
}

export function clientIp(condition: ClientIpCondition): Predicate {
  const contains = addressSet(condition.ranges);
  return (exchange) => contains(exchange.clientAddress);
}

export function not(condition: NotCondition, compileMatcher: CompileMatcher): Predicate {
  const absent = condition.matchers.map((matcher) => negated(compileMatcher(matcher)));
  return (exchange) => allHold(absent, exchange);
}

/** Without values the field must be there; a value may begin or end with `*`. */
function compileHeader(name: string, values: readonly string[]): Predicate {
  if (name.toLowerCase() === 'host') {
    const hosts = values.map(pathLike);
    return (exchange) => hosts.some((matches) => matches(exchange.host.toLowerCase()));
  }
  if (values.length === 0) return (exchange) => exchange.headers.has(name);
  const wanted = values.map((value) => compileWildcard(value, 'edges'));
  return (exchange) =>
    exchange.headers
      .getAll(name)
      .some((value) => wanted.some((matches) => matches(fieldUtf8(value) ?? value)));
}

function compileQuery(name: string, values: readonly string[]): Predicate {
  const wanted = values.includes('*') || values.length === 0 ? null : new Set(values);
  return (exchange) => {
    const present = queryOf(exchange).getAll(name);
    return wanted === null ? present.length > 0 : present.some((value) => wanted.has(value));
  };
}

/** `http`, `https`, `grpc`, `http/1.0`, `http/1.1`, `http/2`; a `+` at the end takes later ones too. */
function compileProtocol(protocol: string): Predicate {
  const wanted = protocol.toLowerCase();
  if (wanted === 'http' || wanted === 'https') return (exchange) => exchange.scheme === wanted;
  if (wanted === 'grpc') {
    return (exchange) =>
      exchange.headers.get('content-type')?.startsWith('application/grpc') === true;
  }
  const orLater = wanted.endsWith('+');
  const version = Number(wanted.replace(/^http\/|\+$/g, ''));
  return ({ httpVersion }) =>
    orLater ? Number(httpVersion) >= version : Number(httpVersion) === version;
}

/** One `*` stands for one label. */
function hostPattern(pattern: string): (host: string) => boolean {
  const labels = hostname(pattern).split('.');
  if (!labels.includes('*')) {
    const exact = labels.join('.');
    return (host) => host === exact;
  }
  return (host) => {
    const parts = host.split('.', labels.length + 1);
    return (
      parts.length === labels.length &&
      labels.every((label, i) => (label === '*' ? parts[i] !== '' : label === parts[i]))
    );
  };
}

/** Whatever its letters' case. */
function pathLike(pattern: string): (text: string) => boolean {
  return compileWildcard(pattern.toLowerCase(), 'path');
}

import { domainToASCII } from 'node:url';
import { addressSet } from '../../http/forwarded.ts';
import type { GlobPiece } from '../../kernel/glob.ts';
import { fieldUtf8 } from '../../http/header-list.ts';
import { matchedPath, pathOf } from '../../http/request-path.ts';
import {
  capturing,
  decoderFor,
  filledIn,
  type IsLike,
  likeAtEdges,
  likePath,
  viewFor,
  allHold,
  type CompileMatcher,
  negated,
  type Predicate,
} from '../../site/text-pattern.ts';
import { expandPlaceholders, hostname, queryOf } from '../../site/placeholders.ts';
import type {
  ClientIpCondition,
  HeaderCondition,
  HeaderRegexpCondition,
  HostCondition,
  MethodCondition,
  NotCondition,
  PathCondition,
  PathRegexpCondition,
  ProtocolCondition,
  QueryCondition,
  RemoteIpCondition,
} from './data.ts';

export function path(condition: PathCondition): Predicate {
  const wanted = condition.paths.map((pattern) => ({
    view: viewFor(pattern),
    like: filledIn(pattern, likePath, decoderFor(pattern)),
  }));
  return (exchange) => {
    const path = pathOf(exchange);
    return wanted.some(({ view, like }) => like(exchange)(view(path)));
  };
}

export function pathRegexp(condition: PathRegexpCondition): Predicate {
  const capture = capturing(condition.pattern, condition.name, false);
  return (exchange) => capture(matchedPath(exchange), exchange);
}

export function host(condition: HostCondition): Predicate {
  const wanted = condition.hosts.map((host) => filledIn(asciiHost(host), hostPattern));
  return (exchange) => {
    const host = hostname(exchange.host);
    return wanted.some((like) => like(exchange)(host));
  };
}

/** Clients send international names in their ASCII form (RFC 5891 §4.4). */
function asciiHost(pattern: string): string {
  const ascii = (label: string): string =>
    /\P{ASCII}/u.test(label) ? domainToASCII(label) || label : label;
  return pattern.split('.').map(ascii).join('.');
}

export function method(condition: MethodCondition): Predicate {
  const methods = new Set(condition.methods.map((method) => method.toUpperCase()));
  return (exchange) => methods.has(exchange.method);
}

export function headerRegexp(condition: HeaderRegexpCondition): Predicate {
  const capture = capturing(condition.pattern, condition.name, true);
  return (exchange) => {
    exchange.dependsOn?.({ field: condition.header });
    return exchange.headers
      .getAll(condition.header)
      .some((value) => capture(fieldUtf8(value) ?? value, exchange));
  };
}

export function remoteIp(condition: RemoteIpCondition): Predicate {
  const contains = addressSet(condition.ranges);
  return (exchange) => {
    exchange.dependsOn?.('client');
    return contains(exchange.remoteAddress);
  };
}

export function clientIp(condition: ClientIpCondition): Predicate {
  const contains = addressSet(condition.ranges);
  return (exchange) => {
    exchange.dependsOn?.('client');
    return contains(exchange.clientAddress);
  };
}

export function not(condition: NotCondition, compileMatcher: CompileMatcher): Predicate {
  const absent = condition.matchers.map((matcher) => negated(compileMatcher(matcher)));
  return (exchange) => allHold(absent, exchange);
}

/** Without values, the field must be present. A value may begin or end with `*`. */
export function header({ name, values }: HeaderCondition): Predicate {
  const isHost = name.toLowerCase() === 'host';
  const wanted = values.map((value) => filledIn(value, isHost ? likePath : likeAtEdges));
  if (isHost) {
    // Every request has a host.
    if (values.length === 0) return () => true;
    return (exchange) => wanted.some((like) => like(exchange)(exchange.host.toLowerCase()));
  }
  return (exchange) => {
    exchange.dependsOn?.({ field: name });
    if (values.length === 0) return exchange.headers.has(name);
    return exchange.headers
      .getAll(name)
      .some((value) => wanted.some((like) => like(exchange)(fieldUtf8(value) ?? value)));
  };
}

export function query({ name, values }: QueryCondition): Predicate {
  // A request without parameters: `/?` has none either.
  if (name === '') return (exchange) => queryOf(exchange).size === 0;
  const takesAny = values.includes('*') || values.length === 0;
  return (exchange) => {
    const present = queryOf(exchange).getAll(expandPlaceholders(name, exchange));
    if (takesAny || present.length === 0) return present.length > 0;
    const wanted = values.map((value) => expandPlaceholders(value, exchange));
    return present.some((value) => wanted.includes(value));
  };
}

/** `http`, `https`, `grpc`, `http/1.0`, `http/1.1`, `http/2`; a `+` at the end includes later versions. */
export function protocol({ protocol }: ProtocolCondition): Predicate {
  const wanted = protocol.toLowerCase();
  if (wanted === 'http' || wanted === 'https') return (exchange) => exchange.scheme === wanted;
  if (wanted === 'grpc') {
    return (exchange) => {
      exchange.dependsOn?.({ field: 'content-type' });
      return exchange.headers.get('content-type')?.startsWith('application/grpc') === true;
    };
  }
  const orLater = wanted.endsWith('+');
  const version = Number(wanted.replace(/^http\/|\+$/g, ''));
  return (exchange) => {
    exchange.dependsOn?.('client');
    const asked = Number(exchange.httpVersion);
    return orLater ? asked >= version : asked === version;
  };
}

/** One `*` stands for one label. */
function hostPattern(pieces: readonly GlobPiece[]): IsLike {
  // No host contains NUL, so a star from a placeholder never matches.
  const pattern = pieces
    .map(({ text, isLiteral }) => (isLiteral ? text.replaceAll('*', '\0') : text))
    .join('');
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

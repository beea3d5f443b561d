import type { HeaderOperation } from '../config/routes.ts';
import { byKind, type DataOf, list, object, withDefault } from '../config/shape.ts';
import { headerName as headerNameShape } from '../config/shape-options.ts';
import { name as nameShape } from '../config/shape-values.ts';
import type { ReverseProxyConfig } from '../proxy/proxy-config.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import type { Word } from '../hubfile/parser.ts';
import type { Span } from '../hubfile/place.ts';
import { step, takeMatcher } from '../hubfile/scope.ts';
import { headerName, name } from '../hubfile/values.ts';
import { compileProxy, proxySettings, reverseProxy } from './reverse-proxy.ts';
import type { Handler } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { dashed } from '../site/identity-placeholders.ts';
import type { Authorization } from '../proxy/response.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface ForwardAuthConfig {
  readonly kind: 'forward_auth';
  readonly proxy: ReverseProxyConfig;
  readonly uri: string;
  readonly copyHeaders: readonly CopiedHeader[];
}

const copiedHeaderShape = object({ from: headerNameShape, to: headerNameShape });

type CopiedHeader = DataOf<typeof copiedHeaderShape>;

const USAGE = `
forward_auth [<matcher>] <upstream…> {
    uri <uri>
    copy_headers <field[>field]…>
    <options of reverse_proxy…>
}
`;

export const forwardAuth: HandlerDirective<ForwardAuthConfig> = {
  data: {
    shape: (inner, matcher) =>
      object({
        proxy: byKind({ reverse_proxy: reverseProxy.data.shape(inner, matcher) }),
        uri: nameShape('a path'),
        copyHeaders: withDefault(list(copiedHeaderShape), []),
      }),
    answering: ({ proxy }) => reverseProxy.data.answering?.(proxy) ?? [],
    patterns: ({ proxy }) => reverseProxy.data.patterns?.(proxy) ?? [],
    upstreams: ({ proxy }) => reverseProxy.data.upstreams?.(proxy) ?? [],
    files: ({ proxy }) => reverseProxy.data.files?.(proxy) ?? [],
    establishes: ({ copyHeaders }) => ({ fields: copyHeaders.map(({ to }) => to), user: false }),
    identifies: true,
    check: ({ proxy }, report) => reverseProxy.data.check?.(proxy, report),
  },
  syntax: {
    usage: USAGE,
    summary: 'asks another service whether a request is allowed',
    read(cursor, scope) {
      const matcher = takeMatcher(cursor, scope);
      let uri: string | null = null;
      let uriSpan: Span | null = null;
      const copyHeaders: CopiedHeader[] = [];
      const read = (option: Cursor): boolean => {
        if (option.name === 'uri') {
          if (uriSpan !== null) option.failTwice(uriSpan);
          uriSpan = option.span;
          uri = name(option, 'a path');
        } else if (option.name === 'copy_headers') {
          copyHeaders.push(...copiedHeaders(option));
        } else {
          return false;
        }
        option.end();
        return true;
      };
      const proxy = proxySettings(cursor, scope, { names: ['uri', 'copy_headers'], read });
      cursor.end();
      if (uri === null) {
        return cursor.fail(
          cursor.span,
          'missing-option',
          'forward_auth needs uri',
          'for example: uri /auth',
        );
      }
      return [step(cursor, matcher, { kind: 'forward_auth', proxy, uri, copyHeaders })];
    },
  },
  compile,
};

function copiedHeaders(cursor: Cursor): CopiedHeader[] {
  const inline = cursor.rest();
  const below = cursor.lines().flatMap((line) => {
    const [first] = line.line.words;
    line.end();
    return first === undefined ? [] : [first];
  });
  if (inline.length + below.length === 0) cursor.argument('a header field');
  return [...inline, ...below].map((word) => copiedHeader(cursor, word));
}

/** `Remote-User`, or `Remote-User>X-User` to rename it. */
function copiedHeader(cursor: Cursor, word: Word): CopiedHeader {
  const [from = '', to = from] = word.text.split('>', 2);
  return { from: headerName(cursor, word, from), to: headerName(cursor, word, to) };
}

/** The facts about the request that the authorizing service gets. */
const ABOUT_THE_REQUEST: readonly HeaderOperation[] = [
  { kind: 'set', name: 'X-Forwarded-Method', value: '{http.request.method}' },
  { kind: 'set', name: 'X-Forwarded-Uri', value: '{http.request.uri}' },
];

/** Fields with which the client proves its identity to the service, even if they are replaced afterwards. */
const PROOFS: ReadonlySet<string> = new Set(['authorization', 'cookie']);

/**
 * `forward_auth [<matcher>] <upstream…> { uri <to>; copy_headers <field>[><as>]… }`: asks a service with a
 * GET. A 2xx of the service admits the request, with the named fields of the response. For any other response, the
 * routes of `handle_response` run; without one that matches, it is sent to the client as the gateway's own: it is not a
 * page of the app. The named fields that the client itself has sent are removed, whatever the result is.
 */
function compile({ proxy, uri, copyHeaders }: ForwardAuthConfig, context: HandlerContext): Handler {
  const isCopied = new Set(copyHeaders.map(({ to }) => dashed(to.toLowerCase())));
  const admit: Handler = async (exchange, next) => {
    for (const { to } of copyHeaders) exchange.identity.establish(to, exchange.headers.getAll(to));
    await next();
  };
  const judge: Authorization['judge'] = (exchange, status, headers) => {
    exchange.headers.deleteWhere((key) => isCopied.has(dashed(key)));
    if (status < 200 || status > 299) return null;
    copy(headers, exchange.headers, copyHeaders);
    return admit;
  };
  const config = {
    ...proxy,
    method: proxy.method ?? 'GET',
    rewrite: proxy.rewrite ?? uri,
    headerUp: [...ABOUT_THE_REQUEST, ...proxy.headerUp],
  };
  const ask = compileProxy(config, context, { judge });
  return async (exchange, next) => {
    // Nobody passes by it: what is kept would be given to others without asking.
    exchange.dependsOn?.('client');
    const { headers, identity } = exchange;
    const removeUnestablished = (): void => {
      const isKept = (key: string): boolean => PROOFS.has(key) || identity.field(key) !== undefined;
      headers.deleteWhere((key) => isCopied.has(dashed(key)) && !isKept(key));
    };
    // The service may need what another one has established before.
    removeUnestablished();
    for (const { to } of copyHeaders) identity.withdraw(to);
    try {
      await ask(exchange, next);
    } catch (error) {
      // If the service has not answered, routes for errors must not pass on what it was asked about.
      removeUnestablished();
      throw error;
    }
  };
}

function copy(
  from: HeaderList,
  to: HeaderList,
  fields: readonly { readonly from: string; readonly to: string }[],
): void {
  for (const field of fields) {
    for (const value of from.getAll(field.from)) to.append(field.to, value);
  }
}

import { Writable } from 'node:stream';
import type { HeaderOperation } from '../../config/config.ts';
import { HttpError } from '../../http/errors.ts';
import type { Handler, Next } from '../../http/exchange.ts';
import type { HeaderList } from '../../http/header-list.ts';
import { dashed } from '../../site/identity-fields.ts';
import { SubExchange } from '../../site/sub-exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import { reverseProxy } from '../reverse-proxy/handler.ts';
import type { ForwardAuthConfig } from './data.ts';

/** What the authorizing service is told of the request it judges. */
const ABOUT_THE_REQUEST: readonly HeaderOperation[] = [
  { kind: 'set', name: 'X-Forwarded-Method', value: '{auth.method}' },
  { kind: 'set', name: 'X-Forwarded-Uri', value: '{auth.uri}' },
];

const NO_MORE: Next = () => Promise.resolve();

/**
 * `forward_auth [<matcher>] <upstream…> { uri <to>; copy_headers <field>[><as>]… }`: asks a service
 * with a GET. A 2xx lets the request pass, with the named fields of the answer; any other answer is
 * the client's, and the gateway's own: it is no page of the app. What the client itself sent in the
 * named fields goes before anybody is asked, whatever comes of it.
 */
export function forwardAuth(
  { proxy, uri, copyHeaders }: ForwardAuthConfig,
  context: HandlerContext,
): Handler {
  const headerUp = [...ABOUT_THE_REQUEST, ...proxy.headerUp];
  const isCopied = new Set(copyHeaders.map(({ to }) => dashed(to.toLowerCase())));
  const ask = reverseProxy({ ...proxy, headerUp }, context);
  return async (exchange, next) => {
    exchange.headers.deleteWhere((key) => isCopied.has(dashed(key)));
    for (const { to } of copyHeaders) exchange.identity.withdraw(to);
    const answer: { granted: HeaderList | null } = { granted: null };
    const sub = new SubExchange(exchange, {
      method: 'GET',
      target: uri,
      variables: new Map(exchange.variables)
        .set('auth.method', exchange.method)
        .set('auth.uri', exchange.target),
      source: 'gateway',
      intercept: ({ status, headers }) => {
        if (status < 200 || status > 299) return null;
        answer.granted = headers;
        return new Writable({ write: (_chunk, _encoding, done) => done() });
      },
    });
    await ask(sub, NO_MORE);
    if (exchange.begun) return;
    if (answer.granted === null) throw new HttpError(502, 'the authorizing service did not answer');
    copy(answer.granted, exchange.headers, copyHeaders);
    for (const { to } of copyHeaders) exchange.identity.establish(to, exchange.headers.getAll(to));
    await next();
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

import { HeaderList } from './header-list.ts';
import type { Exchange } from './exchange.ts';

/**
 * What frames, routes or upgrades the message: nominating it changes nothing. Those that concern
 * one connection only are not passed on anyhow.
 */
const KEPT = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Removes the fields that `Connection` nominates (RFC 9110 §7.6.1). From a request before anybody
 * handles it, so that no client can take away what the gateway adds.
 */
export function dropNominated(headers: HeaderList): void {
  if (!headers.has('connection')) return;
  const nominated = new Set<string>();
  for (const value of headers.getAll('connection')) {
    for (const name of value.split(',')) nominated.add(name.trim().toLowerCase());
  }
  nominated.delete('close');
  nominated.delete('keep-alive');
  headers.deleteWhere((key) => nominated.has(key) && !KEPT.has(key));
}

/** Whether the client waits for 100 before it sends its body (RFC 9110 §10.1.1). */
export function expectsContinue(exchange: Exchange): boolean {
  return exchange.headers.get('expect')?.toLowerCase() === '100-continue';
}

/** Tells a client that waits that its body is wanted. Call it before the first read. */
export function wantBody(exchange: Exchange): void {
  if (exchange.hasBody && expectsContinue(exchange)) exchange.inform(100, new HeaderList());
}

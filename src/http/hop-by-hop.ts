import { HeaderList } from './header-list.ts';
import type { Exchange } from './exchange.ts';

/**
 * Fields that frame, route or upgrade the message, which `Connection` cannot nominate. Those that concern
 * only one connection are never forwarded anyway.
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
 * Removes the fields that `Connection` nominates (RFC 9110 §7.6.1). For a request, this happens before any
 * handler runs, so that a client cannot remove fields that the gateway adds.
 */
export function dropNominated(headers: HeaderList): void {
  const value = headers.combined('connection');
  // That of nearly every message.
  if (value === undefined || value === 'keep-alive' || value === 'close') return;
  const nominated = new Set<string>();
  for (const name of value.split(',')) nominated.add(name.trim().toLowerCase());
  nominated.delete('close');
  nominated.delete('keep-alive');
  headers.deleteWhere((key) => nominated.has(key) && !KEPT.has(key));
}

/** Whether the client waits for 100 before it sends its body (RFC 9110 §10.1.1). */
export function expectsContinue(exchange: Exchange): boolean {
  return exchange.headers.get('expect')?.toLowerCase() === '100-continue';
}

/** Sends 100 to a client that waits for it. Called before the first read. */
export function wantBody(exchange: Exchange): void {
  if (exchange.hasBody && expectsContinue(exchange)) exchange.inform(100, new HeaderList());
}

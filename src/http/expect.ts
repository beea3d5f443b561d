import type { Exchange } from './exchange.ts';
import { HeaderList } from './header-list.ts';

/** Whether the client waits for 100 before it sends its body (RFC 9110 §10.1.1). */
export function expectsContinue(exchange: Exchange): boolean {
  return exchange.headers.get('expect')?.toLowerCase() === '100-continue';
}

/** Tells a client that waits that its body is wanted. Call it before the first read. */
export function wantBody(exchange: Exchange): void {
  if (exchange.hasBody && expectsContinue(exchange)) exchange.inform(100, new HeaderList());
}

import type { Handler } from '../../http/exchange.ts';

/** Closes the connection without an answer. */
export function abort(): Handler {
  return (exchange) => exchange.abort();
}

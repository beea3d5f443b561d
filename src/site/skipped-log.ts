import type { Exchange } from '../http/exchange.ts';

const VARIABLE = 'log_skip';

/** Keeps a request out of the access log. */
export function skipLog({ variables }: Exchange): void {
  variables.set(VARIABLE, 'true');
}

export function isLogSkipped({ variables }: Exchange): boolean {
  return variables.has(VARIABLE);
}

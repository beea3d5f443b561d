import type { HubCounts } from '../hub/hub-measures.ts';
import type { Logger } from '../kernel/log.ts';

/**
 * Counts the requests that only a hub of 0.x lets in, so that its operator sees when nobody needs
 * it any more; the log tells the first, the tenth, the hundredth and so on.
 */
export function countLegacyTokens(
  counts: Pick<HubCounts, 'legacyTokens'>,
  site: string,
  log: Logger,
): () => void {
  return () => {
    counts.legacyTokens += 1;
    const seen = counts.legacyTokens;
    if (!Number.isInteger(Math.log10(seen))) return;
    log.info('A token of a 0.x client was accepted', { site, seen });
  };
}

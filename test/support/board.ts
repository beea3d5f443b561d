import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import type { PresenceBoard, PresenceMatcher } from '../../src/hub/presence-board.ts';

/** All that is on a board, or on it with one matcher, read page by page. */
export async function onBoard(
  board: PresenceBoard,
  matcher?: PresenceMatcher,
  limit = 100,
): Promise<SubscriptionRecord[]> {
  const found: SubscriptionRecord[] = [];
  for (let after: string | null = null, more = true; more; more = after !== null) {
    const page: Awaited<ReturnType<PresenceBoard['page']>> = await board.page(
      after,
      limit,
      matcher,
    );
    found.push(...page.records);
    after = page.next;
  }
  return found;
}

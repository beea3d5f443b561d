// What the hub does in slices, at once.
import { PreparedUpdate } from '../../src/hub/event-stream.ts';
import { type Grants, publishQuestion } from '../../src/hub/grants.ts';
import type { Topic } from '../../src/hub/topic.ts';
import type { Update } from '../../src/hub/update.ts';
import { completed, unlimitedBudget } from '../../src/kernel/scheduler.ts';

/** An update as a server-sent event. */
export function encodeEvent(update: Update): Buffer {
  const event = new PreparedUpdate(update, 'https://hub.invalid/').event(unlimitedBudget());
  if (event === null) throw new TypeError('an unlimited budget was used up');
  return event;
}

/** Whether every topic of an update may be published. */
export function mayPublish(grants: Grants, topics: readonly Topic[]): boolean {
  return completed(publishQuestion(grants, topics, unlimitedBudget()));
}

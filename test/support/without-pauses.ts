// What the hub does in slices, at once.
import { eventOf } from '../../src/hub/event-stream.ts';
import { type Grants, publishQuestion } from '../../src/hub/grants.ts';
import type { Topic } from '../../src/hub/topic.ts';
import type { Update } from '../../src/hub/update.ts';
import { completed, unlimitedBudget } from '../../src/kernel/scheduler.ts';

/** An update as a server-sent event. */
export function encodeEvent(update: Update): Buffer {
  return completed(eventOf(update, unlimitedBudget()));
}

/** Whether every topic of an update may be published. */
export function mayPublish(grants: Grants, topics: readonly Topic[]): boolean {
  return completed(publishQuestion(grants, topics, unlimitedBudget()));
}

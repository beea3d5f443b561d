import type { OutboxConfig } from '../config/config.ts';
import { compileMatcher, matches, type SubscriptionMatcher } from '../hub/matcher.ts';
import { parsePublication, PublicationError, type PublicationRules } from '../hub/publication.ts';
import { parseTopic } from '../hub/topic.ts';
import type { Update } from '../hub/update.ts';
import { parseUrl } from '../kernel/parse.ts';
import { unlimitedBudget } from '../kernel/scheduler.ts';
import { MAX_ELEMENTS, type OutboxRow } from './outbox-table.ts';

/** Bytes of a row that becomes an update, if the hub has no limit of its own. */
export const MAX_ROW_BYTES = 16 * 1024 * 1024;
/** Origins for which a topic that begins with "/" is published. */
const MAX_ORIGINS = 8;

interface RowRules extends PublicationRules {
  readonly outbox: Pick<OutboxConfig, 'topics'>;
  /** Origins of the pages that topics which begin with "/" name. */
  readonly origins: readonly string[];
  readonly maxBytes: number;
}

/**
 * Creates updates from rows, with the rules of every publication. A topic that begins with "/" names a page, as it
 * does in `Hub-Publish`: it becomes the URL of that page on each origin of the site.
 */
export function rowUpdates(rules: RowRules): (row: OutboxRow) => Update {
  const { outbox, maxBytes } = rules;
  const origins = rules.origins.slice(0, MAX_ORIGINS);
  const bases = origins.length === 0 ? [rules.base] : origins;
  const accepted = bases.flatMap((base) => acceptedTopics(outbox, base));
  const accepts = (text: string): boolean =>
    accepted.length === 0 ||
    accepted.some((matcher) => matches(matcher, parseTopic(text, rules.base), unlimitedBudget()));
  const pagesOf = (topic: string): readonly string[] => {
    if (!/^\/(?!\/)/.test(topic)) return [topic];
    if (origins.length === 0) {
      throw refusal(
        `the topic ${shown(topic)} begins with "/", and the site has no host: set origins`,
      );
    }
    return origins.map((origin) => parseUrl(topic, origin)?.href ?? topic);
  };
  return (row) => {
    if (row.isTooLarge) {
      throw new PublicationError(
        'publication-too-large',
        `the row has more than ${maxBytes} bytes, or more than ${MAX_ELEMENTS} topics`,
      );
    }
    const topics = [...new Set([...new Set(row.topics)].flatMap(pagesOf))];
    const { id, data, private: isPrivate } = row;
    const type = row.type ?? undefined;
    const retry = row.retry ?? undefined;
    const fields = { topics, id, data, private: isPrivate, type, retry };
    const { update } = parsePublication(fields, rules);
    const outside = update.topics.find((topic) => !accepts(topic));
    if (outside !== undefined) throw refusal(`the topic ${shown(outside)} is outside "topics"`);
    return update;
  };
}

/**
 * What `topics` accepts: each text is a topic, or a URL Pattern that may be relative to a base.
 *
 * @throws HubgateError as `compileMatcher`
 */
export function acceptedTopics(
  { topics }: Pick<OutboxConfig, 'topics'>,
  base: string,
): readonly SubscriptionMatcher[] {
  return topics.flatMap((match) => [
    compileMatcher({ match, matchType: 'exact' }, base, null),
    compileMatcher({ match, matchType: 'urlpattern' }, base, null),
  ]);
}

function refusal(message: string): PublicationError {
  return new PublicationError('invalid-publication', message);
}

function shown(topic: string): string {
  return topic.slice(0, 200);
}

import { type GrantMatcher, matches, type SubscriptionMatcher } from '../hub/matcher.ts';
import { parseTopic, type Topic } from '../hub/topic.ts';
import { unlimitedBudget } from '../kernel/scheduler.ts';
import { quote } from './diagnosis.ts';

/** How far grants cover a topic or a subscription, and why not further. */
export interface Coverage {
  /** `part`: some of the topics that the subscription matches, as far as the patterns show. */
  readonly verdict: 'all' | 'part' | 'none';
  readonly because: string;
}

/** Grants that are named as reasons; the others are counted. */
const MAX_REASONS = 5;

const COMPONENT_NAMES = {
  protocol: 'scheme',
  hostname: 'host',
  port: 'port',
  pathname: 'path',
  search: 'query',
  hash: 'fragment',
  username: 'user name',
  password: 'password',
} as const;

/** Whether one of the grants covers a topic. */
export function coverTopic(grants: readonly GrantMatcher[], topic: Topic): Coverage {
  const covering = grants.find((grant) => matches(grant, topic, unlimitedBudget()));
  if (covering !== undefined) return { verdict: 'all', because: `${nameOf(covering)} covers it` };
  return { verdict: 'none', because: reasons(grants, (grant) => whyNot(grant, topic)) };
}

/**
 * How far the grants cover the topics that a subscription matches. Two patterns are compared only by their
 * texts and origins. Whether both match a common URL is not decided.
 *
 * @param base see `hubBase`
 */
export function coverSubscription(
  grants: readonly GrantMatcher[],
  matcher: SubscriptionMatcher,
  base: string,
): Coverage {
  const { spec } = matcher;
  if (matcher.kind === 'exact') return coverTopic(grants, parseTopic(spec.match, base));
  const covering = grants.find((grant) => grant.kind === 'any' || isSame(grant, matcher));
  if (covering !== undefined) return { verdict: 'all', because: `${nameOf(covering)} covers it` };
  const touching = grants.filter((grant) => mayTouch(grant, matcher, base));
  if (touching.length > 0) {
    const named = touching.slice(0, MAX_REASONS).map(nameOf).join('; ');
    return { verdict: 'part', because: `only if it is also ${named}` };
  }
  return {
    verdict: 'none',
    because: reasons(grants, (grant) => `${nameOf(grant)} does not overlap with it`),
  };
}

function isSame(grant: GrantMatcher, { spec }: SubscriptionMatcher): boolean {
  return grant.spec?.match === spec.match && grant.spec.matchType === spec.matchType;
}

function mayTouch(grant: GrantMatcher, matcher: SubscriptionMatcher, base: string): boolean {
  if (matcher.kind === 'any') return true;
  if (grant.kind === 'exact')
    return matches(matcher, parseTopic(grant.spec.match, base), unlimitedBudget());
  if (grant.kind !== 'urlpattern' || matcher.kind !== 'urlpattern') return true;
  const [one, other] = [grant.pattern.origin, matcher.pattern.origin];
  if (one !== null && other !== null && one !== other) return false;
  const [prefix, otherPrefix] = [grant.pattern.pathPrefix, matcher.pattern.pathPrefix];
  return prefix.startsWith(otherPrefix) || otherPrefix.startsWith(prefix);
}

function reasons(grants: readonly GrantMatcher[], why: (grant: GrantMatcher) => string): string {
  if (grants.length === 0) return 'the token has no such grant';
  const rest = grants.length - MAX_REASONS;
  const listed = grants.slice(0, MAX_REASONS).map(why).join('; ');
  return rest > 0 ? `${listed}; nor do ${rest} others` : listed;
}

/** The reason why a grant does not cover a topic. */
function whyNot(grant: GrantMatcher, topic: Topic): string {
  const name = nameOf(grant);
  if (grant.kind !== 'urlpattern') return `${name} is another`;
  if (topic.url === null) return `${name} is only for URLs, and the topic is not a URL`;
  const component = grant.pattern.mismatch(topic.url);
  return component === null
    ? `${name} does not match`
    : `${name} has another ${COMPONENT_NAMES[component]} than ${quote(topic.url[component])}`;
}

function nameOf({ kind, spec }: GrantMatcher): string {
  switch (kind) {
    case 'any':
      return 'the grant for everything';
    case 'exact':
      return `the topic ${quote(spec.match)}`;
    case 'urlpattern':
      return `the pattern ${quote(spec.match)}`;
    case 'template':
      return `the template ${quote(spec.match)}`;
    case 'predicate':
      return 'a selector of 0.x';
  }
}

import type { JsonValue } from '../hub/grants.ts';
import { quote } from './diagnosis.ts';
import { isJsonObject, type JsonObject } from './strict-json.ts';
import { parseToken } from './unverified-token.ts';

/** The names that distinguish the grants of a hub from those of others. */
export interface GrantNames {
  readonly detailType: string;
  /** The claim of 0.x tokens. */
  readonly legacyClaim: string;
  /** Whether the hub has `protocol_version_compatibility`. */
  readonly compatible: boolean;
  /** Whether this process reads 0.x tokens. */
  readonly readsLegacy: boolean;
}

/** Grants that are listed; the others are counted. */
const MAX_LISTED = 50;

/**
 * Describes in words what a token grants according to its claims. Nothing in it has been verified. Empty if
 * it is not a token.
 */
export function describeGranted(text: string, names: GrantNames): readonly string[] {
  let claims: JsonObject;
  try {
    ({ claims } = parseToken(text));
  } catch {
    // The check `shape` reports what is wrong with it.
    return [];
  }
  const details = claims['authorization_details'];
  const legacy = claims[names.legacyClaim];
  if (details === undefined && legacy !== undefined) return describeLegacy(legacy, names);
  const lines = Array.isArray(details) ? describeDetails(details, names) : [];
  return lines.length === 0
    ? ['It grants nothing: its bearer can read public updates only, and cannot publish.']
    : ['It grants:', ...bounded(lines)];
}

function describeDetails(details: readonly JsonValue[], { detailType }: GrantNames): string[] {
  return details.filter(isJsonObject).flatMap((detail) => {
    if (detail['type'] !== detailType) {
      return [
        `  nothing at this hub, by an entry of the type ${quote(detail['type'])}: this hub uses another type`,
      ];
    }
    const actions = list(detail['actions']).filter((one) => typeof one === 'string');
    const payload =
      detail['payload'] === undefined ? '' : `, with payload ${quote(detail['payload'])}`;
    return list(detail['topics']).flatMap((topic) =>
      actions.map((action) => `  ${action} ${describeMatcher(topic)}${payload}`),
    );
  });
}

/** Describes what a 0.x token grants, why it is treated differently, and the equivalent in 1.0. */
function describeLegacy(claim: JsonValue, names: GrantNames): readonly string[] {
  const { legacyClaim, detailType, compatible, readsLegacy } = names;
  const entries = isJsonObject(claim)
    ? (['publish', 'subscribe'] as const).flatMap((action) =>
        list(claim[action]).map((entry) => ({ action, topic: modernMatcher(entry) })),
      )
    : [];
  const listed = entries.map(({ action, topic }) => `  ${action} ${describeMatcher(topic)}`);
  const payload = isJsonObject(claim) ? claim['payload'] : undefined;
  const details = (['publish', 'subscribe'] as const).flatMap((action) => {
    const topics = entries.filter((one) => one.action === action).map(({ topic }) => topic);
    if (topics.length === 0) return [];
    const more = action === 'publish' || payload === undefined ? {} : { payload };
    return [{ type: detailType, actions: [action], topics, ...more }];
  });
  const missing = [
    ...(compatible ? [] : ['protocol_version_compatibility 8 in the hub']),
    ...(readsLegacy ? [] : ['to start hubgate with node --conditions=deprecated_claim']),
  ];
  return [
    `It is a 0.x token: it grants by the claim ${quote(legacyClaim)}, which version 1.0 of the protocol no longer has.`,
    ...(listed.length === 0 ? ['It grants nothing.'] : ['It would grant:', ...bounded(listed)]),
    missing.length === 0
      ? 'This hub reads it.'
      : `This hub does not read it. That needs ${missing.join(' and ')}.`,
    ...(details.length === 0
      ? []
      : [
          'It is better to issue it with the header "typ": "at+jwt", with "iss", "aud" and "exp", and with:',
          `  "authorization_details": ${JSON.stringify(details)}`,
        ]),
  ];
}

/** 0.x has strings, which may be URI templates, and in later versions objects with `matchType`. */
function modernMatcher(entry: JsonValue): JsonValue {
  if (typeof entry === 'string') {
    if (!/\{[^}]*\}/.test(entry)) return { match: entry };
    const match = entry.replaceAll(/\{[^A-Za-z0-9_}]?([A-Za-z0-9_]*)[^}]*\}/g, ':$1');
    return { match, match_type: 'urlpattern' };
  }
  if (!isJsonObject(entry)) return entry;
  const { match = null, matchType } = entry;
  return typeof matchType === 'string' && matchType.toLowerCase() !== 'exact'
    ? { match, match_type: matchType.toLowerCase() }
    : { match };
}

function describeMatcher(topic: JsonValue): string {
  if (!isJsonObject(topic)) return `something that cannot be read: ${quote(topic)}`;
  const { match, match_type: type } = topic;
  if (match === '*') return 'everything';
  if (type === 'urlpattern') return `all URLs that match ${quote(match)}`;
  return type === undefined || type === 'exact' || type === null || type === ''
    ? `the topic ${quote(match)}`
    : `what matches ${quote(match)} as ${quote(type)}`;
}

function list(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? value : [];
}

function bounded(lines: readonly string[]): readonly string[] {
  const rest = lines.length - MAX_LISTED;
  return rest > 0 ? [...lines.slice(0, MAX_LISTED), `  and ${rest} more`] : lines;
}

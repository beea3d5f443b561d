// Advice if a token is missing or grants too little: the required grant, and the command that creates such a
// token. The keys are on the server, so the page cannot create one.
import type { MatcherSpec } from '../hub/matcher.ts';
import { quoted } from './as-code.ts';
import { element } from './element.ts';
import type { DebuggerSettings } from './token.ts';

/** The refused action. */
export type Wanted =
  | { readonly use: 'subscribe'; readonly matchers: readonly MatcherSpec[] }
  | { readonly use: 'publish'; readonly topics: readonly string[] };

/** The grant to request after a 401 or 403; empty for another status. */
export function grantAdvice(
  status: number,
  wanted: Wanted,
  hasToken: boolean,
  settings: DebuggerSettings,
): readonly (Node | string)[] {
  if (status !== 401 && status !== 403) return [];
  const names =
    wanted.use === 'publish' ? wanted.topics : wanted.matchers.map(({ match }) => match);
  const why = status === 401 && hasToken ? 'The hub does not accept this token. ' : '';
  return [
    ` ${why}Paste a token with a ${wanted.use} grant that covers ${names.join(', ')}: `,
    element('code', { class: 'block' }, tokenCommand(settings, optionsOf(wanted))),
  ];
}

/** The command that creates a token. */
export function tokenCommand(settings: DebuggerSettings, grants: readonly string[]): string {
  const { audience, detailType } = settings;
  const lines = [
    'hubgate token --iss ISSUER --key @KEYFILE',
    `--aud ${audience}`,
    `--detail-type ${detailType}`,
    ...grants,
  ];
  return lines.join(' \\\n  ');
}

function optionsOf(wanted: Wanted): readonly string[] {
  if (wanted.use === 'publish') return wanted.topics.map((topic) => `--publish ${quoted(topic)}`);
  return wanted.matchers.map(({ match, matchType }) =>
    matchType === 'exact'
      ? `--subscribe ${quoted(match)}`
      : `--subscribe-urlpattern ${quoted(match)}`,
  );
}

import { copyButton, element, find } from './element.ts';
import type { MatcherSpec } from '../hub/matcher.ts';
import type { DebuggerSettings } from './token.ts';

/** The last action, to be shown as code. */
export type Action =
  | {
      readonly kind: 'subscribe';
      readonly url: string;
      readonly cursor: string | null;
      readonly hasToken: boolean;
    }
  | {
      readonly kind: 'publish';
      readonly url: string;
      /** The fields of the form, in its order. */
      readonly fields: readonly (readonly [name: string, value: string])[];
      readonly hasToken: boolean;
    };

/**
 * Shows the action below its form, as curl and as JavaScript. The token is `$TOKEN`, because people share
 * what they copy.
 */
export function showCode(action: Action): void {
  const drawer = find(`${action.kind}-code`, HTMLElement);
  const texts = [
    ['curl', asCurl(action)],
    ['JavaScript', asJavaScript(action)],
  ] as const;
  const blocks = texts.flatMap(([name, text]) => {
    const code = element('pre', { tabindex: '0', 'aria-label': name, class: name }, text);
    const head = element(
      'div',
      { class: 'row between' },
      element('h3', {}, name),
      copyButton(`Copy ${name}`, () => text, code),
    );
    return [head, code];
  });
  drawer.replaceChildren(element('summary', {}, 'As code'), ...blocks);
  drawer.hidden = false;
}

function asCurl(action: Action): string {
  const lines = ['curl --silent --show-error'];
  if (action.hasToken) lines.push('-H "Authorization: Bearer $TOKEN"');
  if (action.kind === 'subscribe') {
    lines[0] += ' --no-buffer';
    if (action.cursor !== null) lines.push(`-H ${quoted(`Last-Event-ID: ${action.cursor}`)}`);
  } else {
    for (const [name, value] of action.fields) {
      lines.push(`--data-urlencode ${quoted(`${name}=${value}`)}`);
    }
  }
  return [...lines, quoted(action.url)].join(' \\\n  ');
}

function asJavaScript(action: Action): string {
  const { url, hasToken } = action;
  const authorization = hasToken ? '  headers: { Authorization: `Bearer ${TOKEN}` },\n' : '';
  if (action.kind === 'publish') {
    return `const answer = await fetch(${JSON.stringify(url)}, {
  method: 'POST',
${authorization}  body: new URLSearchParams([
${action.fields.map(([name, value]) => `    [${JSON.stringify(name)}, ${JSON.stringify(value)}],\n`).join('')}  ]),
});
console.log(answer.status, await answer.text());`;
  }
  const address = new URL(url);
  if (action.cursor !== null) address.searchParams.set('last_event_id', action.cursor);
  const target = JSON.stringify(address.href);
  return hasToken
    ? `// EventSource sends no token.
const answer = await fetch(${target}, {
${authorization}});
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) console.log(text);`
    : `const source = new EventSource(${target}, { withCredentials: true });
source.onmessage = ({ lastEventId, data }) => console.log(lastEventId, data);`;
}

/** Quotes a text for a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// Advice if a token is missing or grants too little: the required grant, and the command that creates such a
// token. The keys are on the server, so the page cannot create one.

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

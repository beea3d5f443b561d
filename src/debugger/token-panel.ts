import type { Check } from '../auth/diagnosis.ts';
import type { MatcherSpec } from '../hub/matcher.ts';
import { element, find } from './element.ts';
import { jsonView } from './json-view.ts';
import {
  type Covered,
  coverPage,
  type DebuggerSettings,
  explainToken,
  type Explanation,
} from './token.ts';

/** The planned action of the page. */
export interface Intent {
  readonly matchers: readonly MatcherSpec[];
  readonly topics: readonly string[];
}

const SIGNS = {
  all: ['good', '✓ covered'],
  part: ['warn', '◐ in part'],
  none: ['bad', '✕ not covered'],
} as const;

/** Shows the contents of the token, the result of the hub's checks, and what it covers on the page. */
export function explain(text: string, settings: DebuggerSettings, intent: Intent): void {
  const explanation = text === '' ? null : explainToken(text, settings, Date.now());
  find('explained', HTMLElement).replaceChildren(
    ...(explanation === null ? [withoutToken(settings)] : judgement(explanation)),
  );
  // For a token that the hub refuses, only the reasons matter.
  find('rights', HTMLElement).hidden =
    explanation === null || explanation.checks.some(({ passed }) => !passed);
  const place = find('allowed', HTMLElement);
  const open = new Set([...place.querySelectorAll('details[open]')].map(({ id }) => id));
  place.replaceChildren(...(explanation === null ? [] : rights(explanation, settings, intent)));
  for (const one of place.querySelectorAll('details')) one.open ||= open.has(one.id);
}

function withoutToken({ anonymous, cookieName }: DebuggerSettings): HTMLElement {
  const without = anonymous
    ? 'you are anonymous and read public updates'
    : 'the hub refuses your requests';
  return element(
    'p',
    { class: 'small muted' },
    'Without a token the cookie ',
    element('code', {}, cookieName),
    ` is sent, if your browser has it (no script can read it). Otherwise ${without}.`,
  );
}

function judgement(explanation: Explanation): HTMLElement[] {
  const failed = explanation.checks.filter(({ passed }) => !passed);
  const why = element('ul', { class: 'checks' }, ...failed.map(failure));
  return failed.length > 0 ? [verdict(explanation), why] : [verdict(explanation)];
}

function rights(
  { checks, granted, token, grants }: Explanation,
  settings: DebuggerSettings,
  intent: Intent,
): HTMLElement[] {
  if (token === null) return [];
  const covered = grants === null ? [] : coverage(coverPage(grants, intent, settings.base));
  const contents = jsonView({ header: token.header, claims: token.claims });
  return [
    element('div', { class: 'granted' }, ...granted.map(line)),
    ...covered,
    element(
      'details',
      { id: 'all-checks' },
      element('summary', {}, 'All checks'),
      element('ul', { class: 'checks' }, ...checks.map(result)),
    ),
    element('details', { id: 'contents' }, element('summary', {}, 'Header and claims'), contents),
  ];
}

/** An indented line belongs to the previous one. */
function line(text: string): HTMLElement {
  const isPart = text.startsWith(' ');
  return element('div', isPart ? { class: 'part' } : {}, text.trim());
}

function verdict({ checks, token }: Explanation): HTMLElement {
  const failed = checks.filter(({ passed }) => !passed).map(({ check }) => check);
  if (failed.length > 0) {
    return element(
      'p',
      { class: 'bad' },
      element('strong', {}, `The hub refuses this token: ${failed.join(', ')}.`),
    );
  }
  const expiry = token === null ? '' : expiresIn(token.claims['exp']);
  return element(
    'p',
    {},
    element('strong', { class: 'good' }, 'This token looks right.'),
    ` ${expiry}The hub checks its issuer and signature when you use it.`,
  );
}

function expiresIn(exp: unknown): string {
  if (typeof exp !== 'number') return 'It never expires. ';
  const minutes = Math.round((exp * 1000 - Date.now()) / 60_000);
  if (minutes < 1) return 'It expires within a minute. ';
  if (minutes < 120) return `It expires in ${minutes} min. `;
  const hours = Math.round(minutes / 60);
  return hours < 72
    ? `It expires in ${hours} h. `
    : `It expires in ${Math.round(hours / 24)} days. `;
}

function failure({ check, expected, found, fix }: Check): HTMLElement {
  return element(
    'li',
    {},
    element('strong', {}, check),
    `: expected ${expected}; found ${found}. `,
    element('span', { class: 'muted' }, fix),
  );
}

function result(check: Check): HTMLElement {
  if (!check.passed) return failure(check);
  return element(
    'li',
    {},
    element('span', { class: 'good' }, '✓ '),
    `${check.check}: ${check.found}`,
  );
}

function coverage(covered: readonly Covered[]): HTMLElement[] {
  if (covered.length === 0) return [];
  const rows = covered.map(({ use, name, verdict, because }) => {
    const [colour, sign] = SIGNS[verdict];
    const isPublic = use === 'subscribe' && verdict !== 'all';
    return element(
      'li',
      {},
      element('span', { class: colour }, sign),
      ` ${use} `,
      element('code', {}, name),
      element(
        'div',
        { class: 'small muted' },
        because,
        isPublic ? '. Public updates arrive all the same.' : '',
      ),
    );
  });
  return [
    element('h3', {}, 'Topics on this page'),
    element('ul', { class: 'checks', id: 'covered' }, ...rows),
  ];
}

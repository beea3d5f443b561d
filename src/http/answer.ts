import type { StatusValue } from '../config/shape-values.ts';
import type { Exchange, Expand } from './exchange.ts';
import { HttpError, reasonPhrase } from './errors.ts';
import { HeaderList } from './header-list.ts';
import { escaped, page, PAGE_POLICY } from './page.ts';

/** Sends a response with a short body of known length. */
export function answer(
  exchange: Exchange,
  status: number,
  fields: Readonly<Record<string, string | readonly string[]>>,
  body: string | Buffer = '',
): void {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body;
  const headers = HeaderList.of(fields);
  // RFC 9110 §8.6: a 204 has no Content-Length. In a 304 it would describe the body that is not sent.
  if (status !== 204 && status !== 304) headers.set('content-length', String(bytes.length));
  exchange.begin({ status, headers, source: 'gateway' }).end(bytes);
}

/**
 * The status for one request.
 *
 * @param status as it is configured: a number, or a text with placeholders
 * @throws HttpError 500 if the placeholders do not become a status within the bounds
 */
export function statusFor(
  status: StatusValue,
  exchange: Exchange,
  expand: Expand,
  { min, max } = { min: 200, max: 599 },
): number {
  if (typeof status === 'number') return status;
  exchange.dependsOn?.('client');
  const text = expand(status, exchange);
  const code = /^\d{3}$/.test(text) ? Number(text) : 0;
  if (code >= min && code <= max) return code;
  throw new HttpError(500, `${status} is not a status from ${min} to ${max} for this request`);
}

/** Details of an error in addition to its status. */
export interface ErrorAnswer {
  /** The configured text for clients; null for the text of the status. */
  readonly shown: string | null;
  /** Time of the error, in milliseconds since the epoch. */
  readonly atMs: number;
}

/** Sends an error as text, or as a page to a client that accepts HTML. */
export function answerError(
  exchange: Exchange,
  status: number,
  known: ErrorAnswer | null = null,
): void {
  const fields = {
    'x-content-type-options': 'nosniff',
    'x-request-id': exchange.id,
    vary: 'Accept',
  };
  if (wantsPage(exchange.headers.combined('accept'))) {
    const type = 'text/html; charset=utf-8';
    const page = { 'content-type': type, 'content-security-policy': PAGE_POLICY };
    answer(exchange, status, { ...fields, ...page }, errorPage(exchange, status, known));
  } else {
    const type = 'text/plain; charset=utf-8';
    const text = known?.shown ?? reasonPhrase(status);
    answer(exchange, status, { ...fields, 'content-type': type }, `${text}\n`);
  }
}

/** The texts for visitors, by status: what happened, and what they can do. The cause is only in the log. */
const TEXTS: Readonly<Record<number, readonly [what: string, advice: string]>> = {
  400: ['This request is not valid.', 'Go back, then try again.'],
  401: ['Please sign in.', 'This page is for users who have signed in.'],
  403: ['You do not have access to this page.', 'Ask the owner of this site for access.'],
  404: ['This page was not found.', 'Check the address for typing errors.'],
  413: ['This upload is too large.', 'Send less at once.'],
  421: ['This site was not found.', 'Check the address for typing errors.'],
  429: ['Too many requests.', 'Please wait a moment, then try again.'],
  500: ['Something went wrong on this site.', 'Please try again shortly.'],
  502: ['This site isn’t responding.', 'Please try again shortly.'],
  503: ['This site is not available at the moment.', 'Please try again shortly.'],
  504: ['This site is taking too long to respond.', 'Please try again shortly.'],
};

/** Errors that may be gone with the next request. */
const TEMPORARY = [502, 503, 504];

/** The error page for visitors. It contains the id of the request, which also appears in its log lines. */
function errorPage({ id, method }: Exchange, status: number, known: ErrorAnswer | null): string {
  const phrase = reasonPhrase(status);
  const [what, usual] = TEXTS[status] ?? [phrase, ''];
  const advice = known?.shown ?? usual;
  // The page has the address of the request, so an empty reference repeats the request.
  const isRepeatable = TEMPORARY.includes(status) && (method === 'GET' || method === 'HEAD');
  const retry = isRepeatable ? '<p><a class="button" href="">Try again</a></p>\n' : '';
  const moment = known === null ? '' : `<br>${timeElement(known.atMs)}`;
  return page(
    `${status} ${phrase}`,
    `<div class="card">
<p class="small muted">${status} ${escaped(phrase)}</p>
<h1>${escaped(what)}</h1>
${advice === '' ? '' : `<p>${escaped(advice)}</p>\n`}${retry}<p class="small muted">Quote this to support:<br>Request <code>${escaped(id)}</code>${moment}</p>
</div>
`,
    'centred',
  );
}

/** To the second, in UTC. */
function timeElement(ms: number): string {
  const time = new Date(ms).toISOString();
  return `<time datetime="${time}">${time.slice(0, 19).replace('T', ' ')} UTC</time>`;
}

/**
 * Whether an `Accept` field asks for a page. Browsers list `text/html` when they navigate; programs do not.
 */
function wantsPage(accept: string | undefined): boolean {
  return (
    accept !== undefined &&
    /(?:^|,)\s*text\/html\s*(?:,|;(?!\s*q=0(?:\.0*)?\s*(?:,|$))|$)/i.test(accept)
  );
}

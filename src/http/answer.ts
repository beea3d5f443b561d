import type { Exchange } from './exchange.ts';
import { reasonPhrase } from './errors.ts';
import { HeaderList } from './header-list.ts';
import { escaped, page, PAGE_POLICY } from './page.ts';

/** Answers with a short body of known length. */
export function answer(
  exchange: Exchange,
  status: number,
  fields: Readonly<Record<string, string | readonly string[]>>,
  body: string | Buffer = '',
): void {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body;
  const headers = HeaderList.of(fields);
  // RFC 9110 §8.6: no Content-Length in 204; in 304 it would speak of the body that is not sent.
  if (status !== 204 && status !== 304) headers.set('content-length', String(bytes.length));
  exchange.begin({ status, headers, source: 'gateway' }).end(bytes);
}

/** Answers an error with the phrase of its status: as text, or as a page to who asks for one. */
export function answerError(exchange: Exchange, status: number): void {
  const fields = {
    'x-content-type-options': 'nosniff',
    'x-request-id': exchange.id,
    vary: 'Accept',
  };
  if (wantsPage(exchange.headers.combined('accept'))) {
    const type = 'text/html; charset=utf-8';
    const page = { 'content-type': type, 'content-security-policy': PAGE_POLICY };
    answer(exchange, status, { ...fields, ...page }, errorPage(status, exchange.id));
  } else {
    const type = 'text/plain; charset=utf-8';
    answer(exchange, status, { ...fields, 'content-type': type }, `${reasonPhrase(status)}\n`);
  }
}

/** What a visitor can make of a status. Nothing of the cause: that is for the log. */
const SENTENCES: Readonly<Record<number, string>> = {
  400: 'The request could not be understood.',
  401: 'This page is for those who have signed in.',
  403: 'This page is not for everybody.',
  404: 'There is nothing at this address.',
  413: 'What was sent is too large.',
  421: 'No site of this name is here.',
  429: 'Too many requests came from where you are. Wait a little, then try again.',
  500: 'Something went wrong here. Try again in a moment.',
  502: 'The site behind this gateway did not answer as it should. Try again in a moment.',
  503: 'The site has no room for this request at the moment. Try again soon.',
  504: 'The site behind this gateway took too long to answer. Try again in a moment.',
};

/** The page of an error for people: its status in words, and the id by which its log lines are found. */
function errorPage(status: number, requestId: string): string {
  const phrase = escaped(reasonPhrase(status));
  const sentence = SENTENCES[status];
  return page(
    `${status} ${reasonPhrase(status)}`,
    `<p class="muted">${status}</p>
<h1>${phrase}</h1>
${sentence === undefined ? '' : `<p>${sentence}</p>\n`}<p class="small muted">Request <code>${escaped(requestId)}</code></p>
`,
  );
}

/** Whether an `Accept` field asks for a page: browsers name it when they navigate, programs do not. */
function wantsPage(accept: string | undefined): boolean {
  return (
    accept !== undefined &&
    /(?:^|,)\s*text\/html\s*(?:,|;(?!\s*q=0(?:\.0*)?\s*(?:,|$))|$)/i.test(accept)
  );
}

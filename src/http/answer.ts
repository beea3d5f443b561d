import type { Exchange } from './exchange.ts';
import { errorPage, wantsPage } from './error-page.ts';
import { reasonPhrase } from './errors.ts';
import { HeaderList } from './header-list.ts';
import { PAGE_POLICY } from './page.ts';

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

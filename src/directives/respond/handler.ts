import type { HandlerConfig } from '../../config/config.ts';
import { answer } from '../../http/answer.ts';
import { errorStatus } from '../../site/error-status.ts';
import type { Exchange, Expand, Handler } from '../../http/exchange.ts';

type Config = Extract<HandlerConfig, { kind: 'respond' }>;

/** `respond [<matcher>] <body>|<status> [<status>] [{ body <text>; close }]`; an error page has the status of its error. */
export function respond({ status, body, close }: Config, expand: Expand): Handler {
  return (exchange) => {
    const text = expand(body, exchange);
    answer(
      exchange,
      status ?? (errorStatus(exchange) || 200),
      {
        ...(text === '' ? {} : { 'Content-Type': contentType(text) }),
        ...(close ? { Connection: 'close' } : {}),
      },
      text,
    );
  };
}

function contentType(text: string): string {
  return /^\s*[[{]/.test(text) && isJson(text) ? 'application/json' : 'text/plain; charset=utf-8';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** `abort`: closes the connection without an answer. */
export function abort(exchange: Exchange): void {
  exchange.abort();
}

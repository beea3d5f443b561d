import { answer } from '../../http/answer.ts';
import { errorStatus } from '../../site/error-status.ts';
import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RespondConfig } from './data.ts';

/** `respond [<matcher>] <body>|<status> [<status>] [{ body <text>; close }]`; an error page has the status of its error. */
export function respond(
  { status, body, close }: RespondConfig,
  { expand }: HandlerContext,
): Handler {
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

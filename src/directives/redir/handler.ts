import { answer } from '../../http/answer.ts';
import type { Handler } from '../../http/exchange.ts';
import { fieldValue } from '../../http/header-operations.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RedirConfig } from './data.ts';

/** `redir [<matcher>] <to> [<status>|permanent|temporary]` */
export function redir({ to, status }: RedirConfig, { expand }: HandlerContext): Handler {
  return (exchange) => {
    answer(exchange, status, { Location: fieldValue(sameSite(to, expand(to, exchange))) });
  };
}

/**
 * A client asks for `//evil.example/x`; `redir {path}/` must not send it there, where browsers
 * would take two slashes, or slash and backslash, for a host.
 */
function sameSite(template: string, location: string): string {
  if (!template.startsWith('{')) return location;
  return location.replace(/^\/[/\\\s]+/, '/');
}

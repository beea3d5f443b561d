import type { Handler } from '../../http/exchange.ts';
import { pathOf } from '../../site/placeholders.ts';
import { setTarget } from '../../site/request-target.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { UriConfig } from './data.ts';

/** `uri strip_prefix|strip_suffix <text>`, `uri replace <text> <replacement> [<limit>]` */
export function uri(
  { operation, text, replacement, limit }: UriConfig,
  { expand }: HandlerContext,
): Handler {
  return (exchange, next) => {
    const wanted = expand(text, exchange);
    const path = pathOf(exchange);
    const query = exchange.target.slice(path.length);
    switch (operation) {
      case 'strip_prefix':
        setTarget(exchange, `${withoutPrefix(path, wanted)}${query}`);
        break;
      case 'strip_suffix':
        setTarget(
          exchange,
          `${wanted !== '' && path.endsWith(wanted) ? path.slice(0, -wanted.length) : path}${query}`,
        );
        break;
      case 'replace':
        setTarget(exchange, replace(exchange.target, wanted, expand(replacement, exchange), limit));
        break;
    }
    return next();
  };
}

/** The prefix counts whatever its case and encoding, as it did when the path was matched. */
function withoutPrefix(path: string, prefix: string): string {
  const wanted = prefix.startsWith('/') ? prefix : `/${prefix}`;
  let at = 0;
  for (const letter of wanted) {
    const encoded = /^%[0-9A-Fa-f]{2}/.exec(path.slice(at, at + 3))?.[0];
    const found =
      encoded === undefined
        ? path.charAt(at)
        : String.fromCharCode(Number.parseInt(encoded.slice(1), 16));
    if (found.toLowerCase() !== letter.toLowerCase()) return path;
    at += encoded?.length ?? 1;
  }
  return path.slice(at);
}

function replace(target: string, wanted: string, replacement: string, limit: number): string {
  if (wanted === '') return target;
  const parts = target.split(wanted);
  const times = limit === 0 ? parts.length - 1 : Math.min(limit, parts.length - 1);
  return (
    parts.slice(0, times + 1).join(replacement) +
    parts
      .slice(times + 1)
      .map((part) => wanted + part)
      .join('')
  );
}

import type { HandlerConfig } from '../../config/config.ts';
import type { Exchange, Expand, Handler } from '../../http/exchange.ts';
import { pathOf } from '../../site/placeholders.ts';

/** `rewrite [<matcher>] <to>`: `/path`, `?query` or both; the part that is not named stays. */
export function rewrite(
  { to }: Extract<HandlerConfig, { kind: 'rewrite' }>,
  expand: Expand,
): Handler {
  const mark = to.indexOf('?');
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange, next) => {
    const newPath = path === '' ? pathOf(exchange) : expand(path, exchange);
    // A placeholder such as {uri} brings a query of its own.
    const keepsOwn = query === null && !newPath.includes('?');
    const newQuery = query === null ? '' : expand(query, exchange);
    const suffix = keepsOwn ? exchange.target.slice(pathOf(exchange).length) : '';
    setTarget(exchange, newQuery === '' ? `${newPath}${suffix}` : `${newPath}?${newQuery}`);
    return next();
  };
}

/** `uri strip_prefix|strip_suffix <text>`, `uri replace <text> <replacement> [<limit>]` */
export function uri(
  { operation, text, replacement, limit }: Extract<HandlerConfig, { kind: 'uri' }>,
  expand: Expand,
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

/** Whatever a placeholder brought in, the target stays one that can stand in a request line. */
function setTarget(exchange: Exchange, target: string): void {
  const rooted = target.startsWith('/') ? target : `/${target}`;
  exchange.target = rooted.replace(/[^!-~]/gu, percentEncoded);
}

function percentEncoded(letter: string): string {
  return Buffer.from(letter, 'utf8').toString('hex').toUpperCase().replace(/../g, '%$&');
}

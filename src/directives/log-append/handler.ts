import type { Exchange, Handler } from '../../http/exchange.ts';
import { HeaderList } from '../../http/header-list.ts';
import { isSecretName, withoutSecretParts } from '../../kernel/secret-names.ts';
import { appendToLog, HIDDEN, MAX_SHOWN } from '../../site/log-notes.ts';
import { PLACEHOLDER, shortName } from '../../site/placeholder-names.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { LogAppendConfig } from './data.ts';

/** Adds a field to the lines of the access logs, what opens doors left out. */
export function logAppend(
  { field, value, early }: LogAppendConfig,
  { expand, logCredentials }: HandlerContext,
): Handler {
  const isHidden = !logCredentials && isSecretName(field);
  const readsResponse = value.includes('{http.response.header.');
  const note = (exchange: Exchange, response = new HeaderList()): void => {
    const shown = value.replace(PLACEHOLDER, (placeholder: string, name: string | undefined) =>
      name !== undefined && isSecret(shortName(name), logCredentials)
        ? HIDDEN
        : expand(placeholder, exchange, response),
    );
    const text = withoutSecretParts(shown, HIDDEN).slice(0, MAX_SHOWN);
    appendToLog(exchange, field, isHidden ? HIDDEN : text);
  };
  return async (exchange, next) => {
    if (early) {
      note(exchange);
      return next();
    }
    let response: HeaderList | undefined;
    if (readsResponse) {
      exchange.onHead(({ headers }) => {
        response = headers;
        return undefined;
      });
    }
    try {
      await next();
    } finally {
      note(exchange, response);
    }
  };
}

/** Parameters of a query are never told, whoever may read the log: they end up in other logs too. */
function isSecret(placeholder: string, logCredentials: boolean): boolean {
  const [family = '', name = ''] = placeholder.split(/\.(.*)/s);
  if (family === 'query') return name !== '' && isSecretName(name);
  if (logCredentials) return false;
  return family === 'cookie' || isSecretName(placeholder.split('.').at(-1) ?? '');
}

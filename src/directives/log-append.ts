import { object, type Of, withDefault } from '../config/shape.ts';
import { flag, text as textShape } from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue, text } from '../hubfile/values.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { isSecretName, withoutSecretParameters, withoutSecretParts } from '../kernel/secret.ts';
import { appendToLog, MAX_SHOWN } from '../site/access-log.ts';
import { PLACEHOLDER, shortName } from '../site/placeholder-names.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { HIDDEN, secretsOf, withoutSecrets } from '../site/request-secrets.ts';
import type { HandlerDirective } from './directive.ts';

const members = {
  field: textShape('a name of letters, digits, _, - and .', isFieldName),
  /** Its placeholders are filled in after the response. */
  value: textShape('a value'),
  /** Whether they are filled in at once instead. */
  early: withDefault(flag, false),
};

export interface LogAppendConfig extends Of<typeof members> {
  readonly kind: 'log_append';
}

/** A valid name of a field in a log line. */
function isFieldName(word: string): boolean {
  return /^[A-Za-z_][\w.-]{0,99}$/.test(word);
}

export const logAppend: HandlerDirective<LogAppendConfig> = {
  data: { shape: () => object(members) },
  syntax: {
    usage: 'log_append [<matcher>] [<]<field> <value>',
    summary: 'adds a field to access log lines',
    read: oneStep((cursor) => {
      const word = cursor.argument('the name of a field and a value');
      const early = word.text.startsWith('<');
      const field = early ? word.text.slice(1) : word.text;
      if (!isFieldName(field)) badValue(cursor, word, 'a name of letters, digits, _, - and .');
      const value = text(cursor, `a value for ${field}`);
      return { kind: 'log_append', field, value, early };
    }),
  },
  compile,
};

/** Adds a field to the lines of the access logs, without credentials. */
function compile(
  { field, value, early }: LogAppendConfig,
  { expand, logCredentials }: HandlerContext,
): Handler {
  const isHidden = !logCredentials && isSecretName(field);
  const readsResponse = value.includes('{http.response.header.');
  const withoutParts = logCredentials ? withoutSecretParameters : withoutSecretParts;
  const hasPlaceholder = value.search(PLACEHOLDER) !== -1;
  const note = (
    exchange: Exchange,
    secrets: readonly string[],
    response = new HeaderList(),
  ): void => {
    const filled = value.replace(PLACEHOLDER, (placeholder: string, name: string | undefined) =>
      name !== undefined && isSecret(shortName(name), logCredentials)
        ? HIDDEN
        : expand(placeholder, exchange, response),
    );
    const shown = withoutParts(withoutSecrets(filled, secrets, HIDDEN), HIDDEN);
    appendToLog(exchange, field, isHidden ? HIDDEN : shown.slice(0, MAX_SHOWN));
  };
  return async (exchange, next) => {
    // They are read now, because later directives may remove the fields and keep the values elsewhere.
    const secrets = hasPlaceholder && !isHidden ? secretsOf(exchange, logCredentials) : [];
    if (early) {
      note(exchange, secrets);
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
      note(exchange, secrets, response);
    }
  };
}

/** Query parameters are never logged, even if credentials are, because they end up in other logs too. */
function isSecret(placeholder: string, logCredentials: boolean): boolean {
  const [family = '', name = ''] = placeholder.split(/\.(.*)/s);
  if (family === 'query') return name !== '' && isSecretName(name);
  if (logCredentials) return false;
  return family === 'cookie' || isSecretName(placeholder.split('.').at(-1) ?? '');
}

/** Conditions of a Caddyfile that hubgate lacks, each with what to do instead. */
export const unsupportedConditions: Readonly<Record<string, string>> = {
  expression: 'combine path, method, header, query and not instead',
  tls: 'use protocol https instead',
};

/** Conditions of a Caddyfile that hubgate lacks, each with what does its work. */
export const unsupportedConditions: Readonly<Record<string, string>> = {
  expression:
    'compare values with vars {placeholder} value, or vars_regexp {placeholder} pattern; lines of one block must all hold, and not negates',
  tls: 'use protocol https instead',
};

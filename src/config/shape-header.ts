import type { HeaderOperation } from './routes.ts';
import { byKind, list, object, type Shape } from './shape.ts';
import { headerName } from './shape-options.ts';
import { text } from './shape-values.ts';
import { isHeaderName, isHeaderValue } from './well-formed.ts';

export const headerValue = text('a value without line breaks', isHeaderValue);
/** A field with its value. */
export const field = object({ name: headerName, value: headerValue });

const headerOperation: Shape<HeaderOperation> = byKind<HeaderOperation>({
  set: field,
  add: field,
  default: field,
  delete: object({
    name: text('the name of a header field; * may stand at either end', (pattern) =>
      isHeaderName(pattern.replaceAll(/^\*|\*$/g, '')),
    ),
  }),
  replace: object({
    name: headerName,
    pattern: text('a regular expression'),
    replacement: headerValue,
  }),
});

/** Changes of header fields, at least one. */
export const headerOperations = list(headerOperation, { min: 1 });
/** The same, and there may be none. */
export const anyHeaderOperations = list(headerOperation);

import type { HandlerData, HeaderOperation } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { headerOperations } from '../config/shape-routes.ts';
import { Cursor } from '../hubfile/cursor.ts';
import { headerOperation } from '../hubfile/values.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../hubfile/scope.ts';
import type { Handler } from '../http/exchange.ts';
import { compileOperations } from '../http/header-operations.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface HeaderConfig {
  readonly kind: 'header';
  readonly operations: readonly HeaderOperation[];
}

const data: HandlerData<HeaderConfig> = {
  shape: () => object({ operations: headerOperations }),
  patterns: ({ operations }) => operations,
  responseFields: ({ operations }) => operations,
};

declare module '../config/routes.ts' {
  interface HandlerKinds {
    header: HeaderConfig;
  }
}

const USAGE = `
header [<matcher>] [+|-|?|>]<field> [<value>|<find>] [<replace>]
header [<matcher>] {
    [+|-|?|>]<field> [<value>|<find>] [<replace>]
}
`;

/**
 * Nothing in front sets, `+` adds, `-` deletes (`*` at either end), `?` sets what is missing. `>`
 * and `defer` change nothing: response headers are always edited when the response is there.
 */
const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'changes response fields',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const operations: HeaderOperation[] = [];
    if (cursor.left > 0) operations.push(headerOperation(cursor, 'response'));
    for (const line of cursor.lines()) {
      cursor.problems.attempt(() => {
        if (line.name !== 'defer') operations.push(fieldLine(line, 'response'));
        line.end();
      });
    }
    if (operations.length === 0) {
      cursor.argument('a header field');
      cursor.fail(cursor.span, 'expected-argument', 'header needs a header field');
    }
    cursor.end();
    return [step(cursor, matcher, { kind: 'header', operations })];
  },
};

/** A line of a block begins with the field itself. */
function fieldLine(line: Cursor, of: 'request' | 'response'): HeaderOperation {
  const first = line.line.words[0];
  const words =
    first === undefined ? line.line.words : [{ ...first, text: 'header' }, ...line.line.words];
  const shifted = new Cursor({ ...line.line, words }, line.problems, line.origins);
  line.rest();
  const operation = headerOperation(shifted, of);
  shifted.end();
  return operation;
}

/** `header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]`: on whatever is answered. */
function compile({ operations }: HeaderConfig, { expand }: HandlerContext): Handler {
  const apply = compileOperations(operations);
  return (exchange, next) => {
    exchange.onHead((head) => {
      apply(head.headers, (template) => expand(template, exchange, head.headers));
      return undefined;
    });
    return next();
  };
}

export const header: HandlerDirective<HeaderConfig> = { data, syntax, compile };

import type { HeaderOperation } from '../config/routes.ts';
import {
  ANY_RESPONSE,
  type ResponseMatcher,
  responseMatcher,
  headerOperations,
} from '../config/shape-routes.ts';
import { object, type Of, withDefault } from '../config/shape.ts';
import { flag } from '../config/shape-values.ts';
import { Cursor } from '../hubfile/cursor.ts';
import { readResponseMatcher } from '../hubfile/named-matchers.ts';
import { headerOperation } from '../hubfile/values.ts';
import { step, takeMatcher } from '../hubfile/scope.ts';
import type { Exchange } from '../http/exchange.ts';
import {
  compileOperations,
  compileResponseMatcher,
  noteConcerned,
} from '../http/header-operations.ts';
import { errorStatus } from '../http/request-variables.ts';
import type { HandlerDirective } from './directive.ts';

const members = {
  operations: headerOperations,
  /**
   * Whether the change waits for the response and also applies to its own fields; otherwise it happens at
   * once, before there are any.
   */
  isDeferred: withDefault(flag, false),
  /** The responses to change. */
  match: responseMatcher,
};

export interface HeaderConfig extends Of<typeof members> {
  readonly kind: 'header';
}

const USAGE = `
header [<matcher>] [+|-|?|>]<field> [<value>|<find>] [<replace>]
header [<matcher>] {
    [+|-|?|>]<field> [<value>|<find>] [<replace>]
    defer
    match {
        status <status…>
        header <field> [<value>]
    }
}
`;

/** The settings of a directive so far. */
interface Draft {
  readonly operations: HeaderOperation[];
  isDeferred: boolean;
  match: ResponseMatcher;
}

export const header: HandlerDirective<HeaderConfig> = {
  data: {
    shape: () => object(members),
    patterns: ({ operations }) => operations,
    responseFields: ({ operations }) => operations,
  },
  /**
   * No prefix sets, `+` adds, `-` deletes (`*` at either end), `?` sets a missing field, and `>` sets when the
   * response is there. One line that needs the response defers the whole block; `?` is a step of its own.
   */
  syntax: {
    usage: USAGE,
    summary: 'changes response fields',
    read(cursor, scope) {
      const matcher = takeMatcher(cursor, scope);
      const draft: Draft = { operations: [], isDeferred: false, match: ANY_RESPONSE };
      if (cursor.left > 0) addOperation(draft, cursor, cursor.peek()?.text ?? '');
      cursor.eachLine((line) => {
        if (line.name === 'defer') draft.isDeferred = true;
        else if (line.name === 'match') draft.match = readResponseMatcher(line);
        else fieldLine(draft, line);
      });
      const { operations, isDeferred, match } = draft;
      if (operations.length === 0) {
        cursor.argument('a header field');
        cursor.fail(cursor.span, 'expected-argument', 'header needs a header field');
      }
      cursor.end();
      // The last default of a field counts.
      const defaults = [
        ...new Map(
          operations.flatMap((one) =>
            one.kind === 'default' ? [[one.name.toLowerCase(), one] as const] : [],
          ),
        ).values(),
      ];
      const others = operations.filter(({ kind }) => kind !== 'default');
      return [
        { kind: 'header', operations: others, isDeferred, match } as const,
        { kind: 'header', operations: defaults, isDeferred: true, match } as const,
      ]
        .filter((one) => one.operations.length > 0)
        .map((one) => step(cursor, matcher, one));
    },
  },
  /** `header [<matcher>] …`: changes the response when it is there, or the preset fields before. */
  compile({ operations, isDeferred, match }, { expand }) {
    const apply = compileOperations(operations);
    const matches = compileResponseMatcher(match);
    const replaced = noteConcerned(operations, ['replace']);
    const overwritten = noteConcerned(operations, ['set', 'delete']);
    /** A field may have been set for this client in front of a cache. */
    const noteFields = ({ preset, dependsOn }: Exchange): void => {
      if (dependsOn === undefined) return;
      replaced(preset, () => dependsOn('client'));
      overwritten(preset, (key) => dependsOn({ preset: key }));
    };
    if (!isDeferred && match.status.length + match.headers.length === 0) {
      return (exchange, next) => {
        noteFields(exchange);
        apply(exchange.preset, (template) => expand(template, exchange));
        return next();
      };
    }
    return (exchange, next) => {
      const error = errorStatus(exchange);
      exchange.onHead(({ status, headers }) => {
        // Changes that wait for a response do not apply to an error page that is sent instead.
        if (errorStatus(exchange) !== error) return undefined;
        const { preset } = exchange;
        if (match.headers.some(({ name }) => preset.has(name))) exchange.dependsOn?.('client');
        if (matches(status, headers)) {
          noteFields(exchange);
          apply(headers, (template) => expand(template, exchange, headers));
        }
        return undefined;
      });
      return next();
    };
  },
};

function addOperation(draft: Draft, cursor: Cursor, written: string): void {
  const operation = headerOperation(cursor, 'response');
  draft.operations.push(operation);
  if (operation.kind === 'delete' || written.startsWith('>')) draft.isDeferred = true;
}

/** A line of a block begins with the field itself. */
function fieldLine(draft: Draft, line: Cursor): void {
  const first = line.line.words[0];
  const words =
    first === undefined ? line.line.words : [{ ...first, text: 'header' }, ...line.line.words];
  const shifted = new Cursor({ ...line.line, words }, line.problems, line.origins);
  line.rest();
  addOperation(draft, shifted, first?.text ?? '');
  shifted.end();
}

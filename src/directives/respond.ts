import { defaultsOf, object, type Of, optional, withDefault } from '../config/shape.ts';
import {
  flag as flagShape,
  statusValue as statusShape,
  type StatusValue,
  text as textShape,
} from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { flag, statusCode, statusValue, text } from '../hubfile/values.ts';
import { answer, statusFor } from '../http/answer.ts';
import { errorStatus } from '../http/request-variables.ts';
import type { HandlerDirective } from './directive.ts';
import { parseJson } from '../kernel/parse.ts';

const members = {
  /** null: 200, or in an error route the status of the error. */
  status: optional(statusShape({ min: 200, max: 599 })),
  body: withDefault(textShape('a text'), ''),
  close: withDefault(flagShape, false),
};

export interface RespondConfig extends Of<typeof members> {
  readonly kind: 'respond';
}

const USAGE = `
respond [<matcher>] <status>|<body> [<status>] {
    body <text>
    close
}
`;

export const respond: HandlerDirective<RespondConfig> = {
  data: {
    answersAll: () => true,
    shape: () => object(members),
  },
  syntax: {
    usage: USAGE,
    summary: 'answers with a fixed text',
    read: oneStep((cursor) => {
      const first = cursor.optional();
      const second = cursor.optional();
      const start: { status: StatusValue | null; body: string; close: boolean } = {
        ...defaultsOf(members),
      };
      if (first !== undefined && second === undefined && /^\d{3}$/.test(first.text)) {
        start.status = statusCode(cursor, first);
      } else if (first !== undefined) {
        start.body = first.text;
      }
      if (second !== undefined) start.status = statusValue(cursor, second);
      const settings = cursor.options(start, {
        body: (option) => ({ body: text(option, 'a text') }),
        close: () => ({ close: flag() }),
      });
      return { kind: 'respond', ...settings };
    }),
  },
  /** `respond [<matcher>] <body>|<status> [<status>] [{ body <text>; close }]`; an error page has the status of its error. */
  compile({ status, body, close }, { expand }) {
    return (exchange) => {
      const text = expand(body, exchange);
      if (text !== body) exchange.dependsOn?.('client');
      answer(
        exchange,
        status === null ? errorStatus(exchange) || 200 : statusFor(status, exchange, expand),
        {
          ...(text === '' || exchange.preset.has('content-type')
            ? {}
            : { 'Content-Type': contentType(text) }),
          ...(close ? { Connection: 'close' } : {}),
        },
        text,
      );
    };
  },
};

function contentType(text: string): string {
  // As Caddy has it, `{}` and `[]` are texts.
  return text.length > 2 && /^[[{]/.test(text) && parseJson(text) !== undefined
    ? 'application/json'
    : 'text/plain; charset=utf-8';
}

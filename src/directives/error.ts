import { defaultsOf, object, type Of, withDefault } from '../config/shape.ts';
import {
  statusValue as statusShape,
  type StatusValue,
  text as textShape,
} from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { statusCode, statusValue, text } from '../hubfile/values.ts';
import { statusFor } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import type { HandlerDirective } from './directive.ts';

const BOUNDS = { min: 400, max: 599 };

const members = {
  status: withDefault(statusShape(BOUNDS), 500),
  message: withDefault(textShape('a text'), ''),
};

export interface ErrorConfig extends Of<typeof members> {
  readonly kind: 'error';
}

const USAGE = `
error [<matcher>] <status>|<message> [<status>] {
    message <text>
}
`;

export const error: HandlerDirective<ErrorConfig> = {
  data: {
    answersAll: () => true,
    shape: () => object(members),
  },
  syntax: {
    usage: USAGE,
    summary: 'raises an error, which `handle_errors` answers',
    read: oneStep((cursor) => {
      const first = cursor.argument('a status or a message');
      const second = cursor.optional();
      const start: { status: StatusValue; message: string } = { ...defaultsOf(members) };
      if (second === undefined && /^\d{3}$/.test(first.text)) {
        start.status = statusCode(cursor, first, BOUNDS);
      } else {
        start.message = first.text;
      }
      if (second !== undefined) start.status = statusValue(cursor, second, BOUNDS);
      const settings = cursor.options(start, {
        message: (option) => ({ message: text(option, 'a text') }),
      });
      return { kind: 'error', ...settings };
    }),
  },
  /** Fails, so that the error routes respond. */
  compile({ status, message }, { expand }) {
    return (exchange) => {
      const text = expand(message, exchange);
      throw new HttpError(statusFor(status, exchange, expand, BOUNDS), text, { shown: text });
    };
  },
};

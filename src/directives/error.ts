import { object } from '../config/shape.ts';
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

export interface ErrorConfig {
  readonly kind: 'error';
  readonly status: StatusValue;
  readonly message: string;
}

const BOUNDS = { min: 400, max: 599 };

const USAGE = `
error [<matcher>] <status>|<message> [<status>] {
    message <text>
}
`;

export const error: HandlerDirective<ErrorConfig> = {
  data: {
    answersAll: () => true,
    shape: () =>
      object(
        { status: statusShape(BOUNDS), message: textShape('a text') },
        { status: 500, message: '' },
      ),
  },
  syntax: {
    usage: USAGE,
    summary: 'raises an error, which `handle_errors` answers',
    read: oneStep((cursor) => {
      const first = cursor.argument('a status or a message');
      const second = cursor.optional();
      const start: { status: StatusValue; message: string } = { status: 500, message: '' };
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

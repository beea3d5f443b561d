import { object, optional } from '../config/shape.ts';
import { statusValue as statusShape, type StatusValue } from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { statusValue } from '../hubfile/values.ts';
import { statusFor } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import { interceptedResponse } from '../proxy/response.ts';
import type { HandlerDirective } from './directive.ts';

export interface CopyResponseConfig {
  readonly kind: 'copy_response';
  /** null: the status of the upstream. */
  readonly status: StatusValue | null;
}

const USAGE = `
copy_response [<matcher>] [<status>] {
    status <status>
}
`;

export const copyResponse: HandlerDirective<CopyResponseConfig> = {
  data: {
    // Where there is a response to copy.
    answersAll: () => true,
    shape: () => object({ status: optional(statusShape({ min: 200, max: 599 })) }),
  },
  syntax: {
    usage: USAGE,
    summary: 'in `handle_response`, sends the response of the upstream to the client',
    read: oneStep((cursor) => {
      const word = cursor.optional();
      const start: { readonly status: StatusValue | null } = {
        status: word === undefined ? null : statusValue(cursor, word),
      };
      const settings = cursor.options(start, {
        status: (option) => ({ status: statusValue(option, option.argument('a status')) }),
      });
      return { kind: 'copy_response', ...settings };
    }),
  },
  /** Sends the response for which the routes run. */
  compile({ status }, { expand }) {
    return (exchange) => {
      const response = interceptedResponse(exchange);
      if (response === undefined || response.send === null) {
        throw new HttpError(500, 'copy_response has no response outside of handle_response');
      }
      response.send(status === null ? response.status : statusFor(status, exchange, expand));
    };
  },
};

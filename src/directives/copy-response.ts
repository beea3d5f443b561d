import type { HandlerData } from '../config/routes.ts';
import { nullable, object } from '../config/shape.ts';
import { statusValue as statusShape, type StatusValue } from '../config/shape-values.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import { statusValue } from '../hubfile/values.ts';
import type { Handler } from '../http/exchange.ts';
import { statusFor } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import { interceptedResponse } from '../proxy/response.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface CopyResponseConfig {
  readonly kind: 'copy_response';
  /** null: the status of the upstream. */
  readonly status: StatusValue | null;
}

const data: HandlerData<CopyResponseConfig> = {
  // Where there is a response to copy.
  answersAll: () => true,
  shape: () => object({ status: nullable(statusShape({ min: 200, max: 599 })) }, { status: null }),
};

const USAGE = `
copy_response [<matcher>] [<status>] {
    status <status>
}
`;

const syntax: DirectiveSyntax = {
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
};

/** Sends the response for which the routes run. */
function compile({ status }: CopyResponseConfig, { expand }: HandlerContext): Handler {
  return (exchange) => {
    const response = interceptedResponse(exchange);
    if (response === undefined || response.send === null) {
      throw new HttpError(500, 'copy_response has no response outside of handle_response');
    }
    response.send(status === null ? response.status : statusFor(status, exchange, expand));
  };
}

export const copyResponse: HandlerDirective<CopyResponseConfig> = { data, syntax, compile };

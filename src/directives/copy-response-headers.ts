import { defaultsOf, list, object, type Of, withDefault } from '../config/shape.ts';
import { headerName as headerNameShape } from '../config/shape-options.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { headerName } from '../hubfile/values.ts';
import { HttpError } from '../http/errors.ts';
import { OF_THE_BODY, staysAlone, yieldSingle } from '../http/header-operations.ts';
import { interceptedResponse } from '../proxy/response.ts';
import type { HandlerDirective } from './directive.ts';

const members = {
  /** The fields to copy; empty means all. */
  include: withDefault(list(headerNameShape), []),
  exclude: withDefault(list(headerNameShape), []),
};

export interface CopyResponseHeadersConfig extends Of<typeof members> {
  readonly kind: 'copy_response_headers';
}

const USAGE = `
copy_response_headers [<matcher>] {
    include <field…>
    exclude <field…>
}
`;

export const copyResponseHeaders: HandlerDirective<CopyResponseHeadersConfig> = {
  data: {
    shape: () => object(members),
  },
  syntax: {
    usage: USAGE,
    summary: 'in `handle_response`, copies header fields of the upstream to the response',
    read: oneStep((cursor) => {
      const settings = cursor.options(
        defaultsOf(members),
        {
          include: (option, { include }) => ({ include: [...include, ...fields(option)] }),
          exclude: (option, { exclude }) => ({ exclude: [...exclude, ...fields(option)] }),
        },
        { repeatable: ['include', 'exclude'] },
      );
      return { kind: 'copy_response_headers', ...settings };
    }),
  },
  /** Copies fields of the upstream's response to the response that is sent instead. */
  compile({ include, exclude }) {
    const wanted = new Set(include.map((name) => name.toLowerCase()));
    const left = new Set(exclude.map((name) => name.toLowerCase()));
    return (exchange, next) => {
      const response = interceptedResponse(exchange);
      if (response === undefined) {
        throw new HttpError(
          500,
          'copy_response_headers has no response outside of handle_response',
        );
      }
      const isCopied = (key: string): boolean =>
        !OF_THE_BODY.has(key) && !left.has(key) && (wanted.size === 0 || wanted.has(key));
      const { preset } = exchange;
      const copied = [...response.headers].filter(([name]) => {
        const key = name.toLowerCase();
        return isCopied(key) && !staysAlone(preset, key);
      });
      for (const [name, value] of copied) preset.append(name, value);
      yieldSingle(
        preset,
        copied.map(([name]) => name),
      );
      return next();
    };
  },
};

function fields(cursor: Cursor): string[] {
  return cursor.several('a header field').map((word) => headerName(cursor, word));
}

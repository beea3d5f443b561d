import { type HeaderOperation, identityFieldsIn } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { headerOperations } from '../config/shape-routes.ts';
import { headerOperation } from '../hubfile/values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { compileOperations } from '../http/header-operations.ts';
import type { HandlerDirective } from './directive.ts';

export interface RequestHeaderConfig {
  readonly kind: 'request_header';
  readonly operations: readonly HeaderOperation[];
}

export const requestHeader: HandlerDirective<RequestHeaderConfig> = {
  data: {
    shape: () => object({ operations: headerOperations }),
    patterns: ({ operations }) => operations,
    writesIdentity: ({ operations }) => identityFieldsIn(operations),
    retargets: ({ operations }) => concernsHost(operations),
  },
  syntax: {
    usage: 'request_header [<matcher>] [+|-]<field> [<value>|<find>] [<replace>]',
    summary: 'changes request fields',
    read: oneStep((cursor) => ({
      kind: 'request_header',
      operations: [headerOperation(cursor, 'request')],
    })),
  },
  /** `request_header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]` */
  compile({ operations }, { expand }) {
    const apply = compileOperations(operations, 'request');
    const changesHost = concernsHost(operations);
    return (exchange, next) => {
      const { headers } = exchange;
      // A client's own field is the authority that it asks for, however it has sent it.
      if (changesHost) headers.set('Host', exchange.host);
      apply(headers, (text, name) =>
        expand(text, exchange, undefined, undefined, name.toLowerCase()),
      );
      if (changesHost) exchange.host = headers.getAll('host').at(-1) ?? exchange.host;
      return next();
    };
  },
};

function concernsHost(operations: readonly HeaderOperation[]): boolean {
  return operations.some(({ name }) => name.toLowerCase() === 'host');
}

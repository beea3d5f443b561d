import type { HeaderOperation } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { headerOperations } from '../../config/shape-header.ts';

export interface RequestHeaderConfig {
  readonly kind: 'request_header';
  readonly operations: readonly HeaderOperation[];
}

export const requestHeader: HandlerData<RequestHeaderConfig> = {
  shape: () => object({ operations: headerOperations }),
  patterns: ({ operations }) => operations,
  vouchesFor: ({ operations }, field) => operations.some((one) => replaces(one, field)),
};

function replaces(operation: HeaderOperation, field: string): boolean {
  const { kind } = operation;
  return (kind === 'set' || kind === 'delete') && operation.name.toLowerCase() === field;
}

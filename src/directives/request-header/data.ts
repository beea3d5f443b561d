import type { HeaderOperation } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { identityFieldsIn } from '../../config/identity-operations.ts';
import { headerOperations } from '../../config/shape-header.ts';

export interface RequestHeaderConfig {
  readonly kind: 'request_header';
  readonly operations: readonly HeaderOperation[];
}

export const requestHeader: HandlerData<RequestHeaderConfig> = {
  shape: () => object({ operations: headerOperations }),
  patterns: ({ operations }) => operations,
  writesIdentity: ({ operations }) => identityFieldsIn(operations),
};

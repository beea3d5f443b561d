import type { HeaderOperation } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { headerOperations } from '../../config/shape-header.ts';

export interface HeaderConfig {
  readonly kind: 'header';
  readonly operations: readonly HeaderOperation[];
}

export const header: HandlerData<HeaderConfig> = {
  shape: () => object({ operations: headerOperations }),
  patterns: ({ operations }) => operations,
  responseFields: ({ operations }) => operations,
};

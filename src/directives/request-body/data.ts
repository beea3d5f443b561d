import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { size } from '../../config/shape-values.ts';

export interface RequestBodyConfig {
  readonly kind: 'request_body';
  /** Bytes. */
  readonly maxSize: number;
}

export const requestBody: HandlerData<RequestBodyConfig> = {
  shape: () => object({ maxSize: size() }),
};

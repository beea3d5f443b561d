import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';

export interface AbortConfig {
  readonly kind: 'abort';
}

export const abort: HandlerData<AbortConfig> = { shape: () => object({}) };

import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';

export interface LogSkipConfig {
  readonly kind: 'log_skip';
}

export const logSkip: HandlerData<LogSkipConfig> = { shape: () => object({}) };

import type { HandlerData } from '../../config/handler-data.ts';
import { list, object } from '../../config/shape.ts';
import { text } from '../../config/shape-values.ts';
import { isLogName } from '../../config/well-formed.ts';

export interface LogNameConfig {
  readonly kind: 'log_name';
  /** Logs of the site. */
  readonly names: readonly string[];
}

export const logName: HandlerData<LogNameConfig> = {
  shape: () => object({ names: list(text('the name of a log', isLogName), { min: 1 }) }),
};

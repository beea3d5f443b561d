import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { headerValue } from '../../config/shape-header.ts';
import { count } from '../../config/shape-values.ts';

export interface RedirConfig {
  readonly kind: 'redir';
  readonly to: string;
  readonly status: number;
}

export const redir: HandlerData<RedirConfig> = {
  shape: () => object({ to: headerValue, status: count({ min: 300, max: 399 }) }, { status: 302 }),
};

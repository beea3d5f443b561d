import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { text } from '../../config/shape-values.ts';

export interface RewriteConfig {
  readonly kind: 'rewrite';
  readonly to: string;
}

export const rewrite: HandlerData<RewriteConfig> = {
  shape: () => object({ to: text('a path or a query', (to) => /^[/?{]/.test(to)) }),
};

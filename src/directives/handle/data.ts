import type { RouteConfig } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { count } from '../../config/shape-values.ts';

/** Of the `handle` routes that share a `group`, only the first that matches runs. */
export interface HandleConfig {
  readonly kind: 'handle';
  readonly group: number;
  readonly routes: readonly RouteConfig[];
}

export const handle: HandlerData<HandleConfig> = {
  shape: (inner) => object({ group: count(), routes: inner }, { group: 0 }),
  nested: ({ routes }) => routes,
  group: ({ group }) => group,
};

import type { RouteConfig } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';

export interface RouteBlockConfig {
  readonly kind: 'route';
  readonly routes: readonly RouteConfig[];
}

export const route: HandlerData<RouteBlockConfig> = {
  shape: (inner) => object({ routes: inner }),
  nested: ({ routes }) => routes,
};

import type { HandlerData } from '../../config/routes.ts';
import { nullable, object } from '../../config/shape.ts';
import { name } from '../../config/shape-values.ts';

/** The place of a hub of the site among its routes. */
export interface HubPlaceConfig {
  readonly kind: 'hub';
  /** One of its further hubs; null for the first. */
  readonly name: string | null;
}

declare module '../../config/routes.ts' {
  interface HandlerKinds {
    hub: HubPlaceConfig;
  }
}

export const hub: HandlerData<HubPlaceConfig> = {
  shape: () => object({ name: nullable(name('the name of a further hub')) }, { name: null }),
};

import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';

/** The place of the site's hub among its routes. */
export interface HubPlaceConfig {
  readonly kind: 'hub';
}

export const hub: HandlerData<HubPlaceConfig> = { shape: () => object({}) };

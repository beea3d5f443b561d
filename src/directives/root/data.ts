import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { name } from '../../config/shape-values.ts';

export interface RootConfig {
  readonly kind: 'root';
  readonly path: string;
}

export const root: HandlerData<RootConfig> = {
  shape: () => object({ path: name('a directory') }),
};

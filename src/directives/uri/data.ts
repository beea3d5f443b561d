import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { count, name, oneOf, text } from '../../config/shape-values.ts';

export interface UriConfig {
  readonly kind: 'uri';
  readonly operation: 'strip_prefix' | 'strip_suffix' | 'replace';
  readonly text: string;
  /** Only with `replace`. */
  readonly replacement: string;
  /** Only with `replace`; 0 means all. */
  readonly limit: number;
}

export const uri: HandlerData<UriConfig> = {
  shape: () =>
    object(
      {
        operation: oneOf('strip_prefix', 'strip_suffix', 'replace'),
        text: name('a text'),
        replacement: text('a text'),
        limit: count(),
      },
      { replacement: '', limit: 0 },
    ),
};

import type { HandlerData } from '../../config/handler-data.ts';
import { list, object } from '../../config/shape.ts';
import { oneOf, size } from '../../config/shape-values.ts';

export interface EncodeConfig {
  readonly kind: 'encode';
  /** In the order of preference. */
  readonly encodings: readonly Encoding[];
  /** Bytes. */
  readonly minimumLength: number;
}

export type Encoding = 'gzip' | 'br' | 'zstd';

export const encode: HandlerData<EncodeConfig> = {
  shape: () =>
    object(
      { encodings: list(oneOf('gzip', 'br', 'zstd'), { min: 1 }), minimumLength: size() },
      { encodings: ['br', 'gzip'], minimumLength: 512 },
    ),
};

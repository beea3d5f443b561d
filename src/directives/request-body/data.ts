import type { HandlerData } from '../../config/handler-data.ts';
import { nullable, object } from '../../config/shape.ts';
import { duration, size } from '../../config/shape-values.ts';

export interface RequestBodyConfig {
  readonly kind: 'request_body';
  /** Bytes; null means no limit. */
  readonly maxSize: number | null;
  /** From here to the end of the body; 0 means no limit. */
  readonly readTimeoutMs: number;
  /** From here to the end of the answer; 0 means no limit. */
  readonly writeTimeoutMs: number;
}

export const defaultRequestBody = { maxSize: null, readTimeoutMs: 0, writeTimeoutMs: 0 } as const;

export const requestBody: HandlerData<RequestBodyConfig> = {
  shape: () =>
    object(
      { maxSize: nullable(size()), readTimeoutMs: duration(), writeTimeoutMs: duration() },
      defaultRequestBody,
    ),
};

import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { count, text } from '../../config/shape-values.ts';

export interface ErrorConfig {
  readonly kind: 'error';
  readonly status: number;
  readonly message: string;
}

export const error: HandlerData<ErrorConfig> = {
  shape: () =>
    object(
      { status: count({ min: 400, max: 599 }), message: text('a text') },
      { status: 500, message: '' },
    ),
};

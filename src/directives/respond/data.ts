import type { HandlerData } from '../../config/handler-data.ts';
import { nullable, object } from '../../config/shape.ts';
import { count, flag, text } from '../../config/shape-values.ts';

export interface RespondConfig {
  readonly kind: 'respond';
  /** null: 200, and in an error route the status of the error. */
  readonly status: number | null;
  readonly body: string;
  readonly close: boolean;
}

export const respond: HandlerData<RespondConfig> = {
  shape: () =>
    object(
      { status: nullable(count({ min: 200, max: 599 })), body: text('a text'), close: flag },
      { status: null, body: '', close: false },
    ),
};

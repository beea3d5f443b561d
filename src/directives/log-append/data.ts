import type { HandlerData } from '../../config/handler-data.ts';
import { object } from '../../config/shape.ts';
import { flag, text } from '../../config/shape-values.ts';

export interface LogAppendConfig {
  readonly kind: 'log_append';
  readonly field: string;
  /** Placeholders in it are filled in once the request has been answered. */
  readonly value: string;
  /** They are filled in at once instead. */
  readonly early: boolean;
}

/** What a log line can have as the name of a field. */
export function isFieldName(word: string): boolean {
  return /^[A-Za-z_][\w.-]{0,99}$/.test(word);
}

export const logAppend: HandlerData<LogAppendConfig> = {
  shape: () =>
    object(
      {
        field: text('a name of letters, digits, _, - and .', isFieldName),
        value: text('a value'),
        early: flag,
      },
      { early: false },
    ),
};

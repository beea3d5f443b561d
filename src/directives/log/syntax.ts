import type { LogOptions, RollOptions } from '../../config/config.ts';
import { defaultAccessLog, defaultRoll } from '../../config/defaults.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import type { Directive } from '../../hubfile/scope.ts';
import { count, duration, flag, name, oneOf, size } from '../../hubfile/values.ts';

const USAGE = `
log {
    output stderr|stdout
    output file <path> {
        roll_size <size>
        roll_keep <count>
        roll_keep_for <duration>
        roll_interval <duration>
        roll_disabled
    }
    format console|json
}
`;

export const log: Directive = {
  usage: USAGE,
  summary: 'the access log of the site',
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    scope.site.accessLog = cursor.options(defaultAccessLog, {
      output: (option) => logOutput(option),
      format: (option) => ({ format: oneOf(option, ['console', 'json']) }),
    });
    cursor.end();
    return [];
  },
};

export function logOutput(cursor: Cursor): Pick<LogOptions, 'output' | 'roll'> {
  const kind = oneOf(cursor, ['stderr', 'stdout', 'file']);
  if (kind !== 'file') return { output: kind, roll: defaultRoll };
  const output = name(cursor, 'the path of a file');
  return { output, roll: rolling(cursor) };
}

function rolling(cursor: Cursor): RollOptions | null {
  if (cursor.line.block === null) return defaultRoll;
  const { disabled, ...roll } = cursor.options(
    { ...defaultRoll, disabled: false },
    {
      roll_size: (option) => ({ size: atLeastOne(option) }),
      roll_keep: (option) => ({ keep: count(option, { min: 1 }) }),
      roll_keep_for: (option) => ({ keepForMs: duration(option) }),
      roll_interval: (option) => ({ intervalMs: duration(option) }),
      roll_disabled: () => ({ disabled: flag() }),
    },
    {
      unsupported: {
        mode: 'files of logs are made for their owner alone, with mode 0600',
        roll_uncompressed: 'rolled files are not compressed, so leave it out',
        roll_compression:
          'rolled files are not compressed; let roll_keep and roll_keep_for bound them',
        roll_gzip: 'rolled files are not compressed; let roll_keep and roll_keep_for bound them',
        roll_local_time: 'the names of rolled files are UTC, so leave it out',
        roll_minutes: 'use roll_interval',
        roll_at: 'use roll_interval',
      },
    },
  );
  return disabled ? null : roll;
}

function atLeastOne(option: Cursor): number {
  const bytes = size(option);
  if (bytes > 0) return bytes;
  return option.fail(
    option.span,
    'bad-value',
    'roll_size is 1 byte at least',
    'roll_disabled rolls nothing',
  );
}

import type { LogOptions } from '../config/config.ts';
import { defaultOptions, defaultRoll } from '../config/shape-options.ts';
import { isLogMode, isLogName } from '../config/well-formed.ts';
import type { Cursor } from './cursor.ts';
import { choiceOf, count, duration, flag, name, oneOf, size, matching } from './values.ts';

/** The name of a log: letters, digits, `_` and `-`. */
export function logName(cursor: Cursor): string {
  return matching(cursor, 'the name of a log', isLogName, 'a name of letters, digits, _ and -');
}

/** Caddy's names, also in capitals. */
export function logLevel(cursor: Cursor): LogOptions['level'] {
  const word = cursor.argument('a level');
  const levels = ['debug', 'info', 'warn', 'error'] as const;
  return choiceOf(cursor, { ...word, text: word.text.toLowerCase() }, levels);
}

/** The destination of a log: `stderr`, `stdout`, or `file` with the options of its block. */
export function logOutput(cursor: Cursor): Pick<LogOptions, 'output' | 'roll' | 'mode'> {
  const word = cursor.peek();
  if (word?.text === 'net') {
    const instead =
      'write to stdout or a file, and let a program such as Vector or Fluent Bit send the lines';
    cursor.failUnsupported(word.span, 'output net', instead);
  }
  // Only the log of a site may be discarded: without that of the gateway, nobody learns why it fails.
  if (word?.text === 'discard') {
    const instead =
      'here, write level error; in the log of a site, output discard leaves out its requests';
    cursor.failUnsupported(word.span, 'output discard in the log of the gateway', instead);
  }
  const kind = oneOf(cursor, ['stderr', 'stdout', 'file']);
  if (kind !== 'file') return { output: kind, ...DEFAULT_FILE };
  const output = name(cursor, 'the path of a file');
  return { output, ...fileOptions(cursor) };
}

const DEFAULT_FILE = { roll: defaultRoll, mode: defaultOptions.log.mode };

function fileOptions(cursor: Cursor): Pick<LogOptions, 'roll' | 'mode'> {
  if (cursor.line.block === null) return DEFAULT_FILE;
  const { disabled, mode, ...roll } = cursor.options(
    { ...defaultRoll, mode: DEFAULT_FILE.mode, disabled: false },
    {
      mode: (option) => ({ mode: fileMode(option) }),
      roll_size: (option) => ({ size: atLeastOne(option) }),
      roll_keep: (option) => ({ keep: count(option, { min: 1 }) }),
      roll_keep_for: (option) => ({ keepForMs: duration(option) }),
      roll_interval: (option) => ({ intervalMs: duration(option) }),
      roll_disabled: () => ({ disabled: flag() }),
    },
    {
      unsupported: {
        roll_compression:
          'hubgate does not compress rolled files; limit them with roll_keep and roll_keep_for',
        roll_gzip:
          'hubgate does not compress rolled files; limit them with roll_keep and roll_keep_for',
        roll_minutes: 'use roll_interval',
        roll_at: 'use roll_interval',
      },
    },
  );
  return { roll: disabled ? null : roll, mode };
}

function fileMode(option: Cursor): string {
  const mode = name(option, 'a mode such as 0640');
  if (isLogMode(mode)) return mode;
  const message = 'the mode of a log must be 0600 to 0666, so that its owner can read and write it';
  return option.fail(option.span, 'bad-value', message, 'write 0640 to let the group read it');
}

function atLeastOne(option: Cursor): number {
  const bytes = size(option);
  if (bytes > 0) return bytes;
  const hint = 'roll_disabled excludes the other roll options';
  return option.fail(option.span, 'bad-value', 'roll_size must be at least 1 byte', hint);
}

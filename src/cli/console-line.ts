import { printable } from './printable.ts';

const RESET = '\u001b[0m';
const DIM = '\u001b[2m';
const LEVEL_COLOURS: Readonly<Record<string, string>> = {
  debug: DIM,
  info: '\u001b[32m',
  warn: '\u001b[33m',
  error: '\u001b[1;31m',
};

/**
 * A line of the log for a person: `12:00:00.000 WARN  message key=value`. Access lines begin with
 * what was asked and answered.
 */
export function consoleLine(json: string, coloured: boolean): string {
  const { time, level, msg, ...fields }: Record<string, unknown> = JSON.parse(json);
  const paint = (colour: string, text: string): string =>
    coloured && text !== '' ? `${colour}${text}${RESET}` : text;
  const clock = paint(DIM, String(time).slice(11, 23));
  const name = String(level);
  const word = paint(LEVEL_COLOURS[name] ?? '', name.toUpperCase().padEnd(5));
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${JSON.stringify(value)}`);
  return `${clock} ${word} ${printable(String(msg))}${paint(DIM, printable(rest.join('')))}\n`;
}

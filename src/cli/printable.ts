/** Control characters of both sets (C0, DEL, C1), but tab and line end. */
const CONTROLS = /[^\P{Cc}\t\n]/gu;

/**
 * Text that somebody else has chosen, for a terminal: control characters, of which terminals take some
 * for commands, as `\u009b`. What is JSON stays the same JSON.
 */
export function printable(text: string): string {
  return text.replace(
    CONTROLS,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

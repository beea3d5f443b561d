import { pino, type Logger as PinoLogger } from 'pino';
import type { LogOptions } from '../config/config.ts';
import type { LogFields, Logger } from '../kernel/log.ts';

/** A logger whose level and target a reload can change. */
export interface ConfigurableLogger extends Logger {
  configure(options: LogOptions): void;
}

/**
 * The process's log: JSON lines, or text for a person at a terminal. Lines are written before the
 * call returns, so that the last ones before a crash are there.
 */
export function createLogger(options: LogOptions): ConfigurableLogger {
  const current = { pino: openPino(options) };
  const wrap = (fields: LogFields): Logger => ({
    debug: (message, more) => current.pino.debug({ ...fields, ...more }, message),
    info: (message, more) => current.pino.info({ ...fields, ...more }, message),
    warn: (message, more) => current.pino.warn({ ...fields, ...more }, message),
    error: (message, more) => current.pino.error({ ...fields, ...more }, message),
    child: (more) => wrap({ ...fields, ...more }),
  });
  return {
    ...wrap({}),
    configure(next) {
      current.pino = openPino(next);
    },
  };
}

/** Opens logs by what they are, each once: a reload goes on with the file that is open. */
export function createLogOpener(): (options: LogOptions) => Logger {
  const opened = new Map<string, Logger>();
  return (options) => {
    const key = JSON.stringify(options);
    const present = opened.get(key) ?? createLogger(options);
    opened.set(key, present);
    return present;
  };
}

function openPino({ level, format, output }: LogOptions): PinoLogger {
  const stream = output === 'stdout' ? process.stdout : process.stderr;
  const isFile = output !== 'stdout' && output !== 'stderr';
  const asText = format === 'console' || (format === 'auto' && !isFile && stream.isTTY);
  const settings = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const destination = pino.destination({
    ...(isFile
      ? { dest: output, mode: 0o600, mkdir: true }
      : { dest: output === 'stdout' ? 1 : 2 }),
    sync: true,
  });
  if (!asText) return pino(settings, destination);
  return pino(settings, { write: (line) => void destination.write(asConsoleLine(line)) });
}

/** `12:00:00.000 WARN message key=value`. */
function asConsoleLine(line: string): string {
  const { time, level, msg, ...fields }: Record<string, unknown> = JSON.parse(line);
  const clock = String(time).slice(11, 23);
  const rest = Object.entries(fields).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`);
  return `${clock} ${String(level).toUpperCase().padEnd(5)} ${String(msg)}${rest.join('')}\n`;
}

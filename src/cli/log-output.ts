import { mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { pino, type Logger as PinoLogger } from 'pino';
import type { LogOptions } from '../config/config.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { LogFields, Logger } from '../kernel/log.ts';

/** A logger whose level and target a reload can change. */
export interface ConfigurableLogger extends Logger {
  /**
   * Opens what the log is to be. One of the functions that it gives is called, once.
   *
   * @throws HubgateError `log-failed` when a file cannot be opened; the log stays as it is then
   */
  prepare(options: LogOptions): { commit(): void; discard(): void };
}

/** A log that is open. */
interface OpenLog {
  readonly pino: PinoLogger;
  close(): void;
}

/**
 * The process's log: JSON lines, or text for a person at a terminal. Lines are written before the
 * call returns, so that the last ones before a crash are there.
 */
export function createLogger(options: LogOptions): ConfigurableLogger {
  let current = openLog(options);
  const wrap = (fields: LogFields): Logger => ({
    debug: (message, more) => current.pino.debug({ ...fields, ...more }, message),
    info: (message, more) => current.pino.info({ ...fields, ...more }, message),
    warn: (message, more) => current.pino.warn({ ...fields, ...more }, message),
    error: (message, more) => current.pino.error({ ...fields, ...more }, message),
    child: (more) => wrap({ ...fields, ...more }),
  });
  return {
    ...wrap({}),
    prepare(next) {
      const prepared = openLog(next);
      return {
        commit() {
          current.close();
          current = prepared;
        },
        discard: () => prepared.close(),
      };
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

function openLog({ level, format, output }: LogOptions): OpenLog {
  const terminal = output === 'stdout' ? process.stdout : process.stderr;
  const isFile = output !== 'stdout' && output !== 'stderr';
  const asText = format === 'console' || (format === 'auto' && !isFile && terminal.isTTY);
  const settings = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const destination = isFile ? openFile(output) : output === 'stdout' ? 1 : 2;
  const stream = pino.destination({ dest: destination, sync: true });
  return {
    pino: asText
      ? pino(settings, { write: (line) => void stream.write(asConsoleLine(line)) })
      : pino(settings, stream),
    close() {
      if (isFile) stream.end();
    },
  };
}

function openFile(path: string): number {
  try {
    mkdirSync(dirname(path), { recursive: true });
    return openSync(path, 'a', 0o600);
  } catch (cause) {
    throw new HubgateError('log-failed', `The log ${path} cannot be opened: ${messageOf(cause)}`, {
      cause,
    });
  }
}

/** `12:00:00.000 WARN message key=value`. */
function asConsoleLine(line: string): string {
  const { time, level, msg, ...fields }: Record<string, unknown> = JSON.parse(line);
  const clock = String(time).slice(11, 23);
  const rest = Object.entries(fields).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`);
  return `${clock} ${String(level).toUpperCase().padEnd(5)} ${String(msg)}${rest.join('')}\n`;
}

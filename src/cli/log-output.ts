import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { type Logger as PinoLogger, pino } from 'pino';
import type { LogOptions } from '../config/config.ts';
import { systemClock } from '../kernel/clock.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { defaultLogEncoding } from '../config/log-encoding.ts';
import { compileLogLines } from '../runtime/log-lines.ts';
import type { LogFields, Logger } from '../kernel/log.ts';
import { LogFile, sleepSync } from './log-file.ts';
import { printable } from './terminal.ts';

/** A logger whose level and target can be changed by a reload. */
export interface ConfigurableLogger extends Logger {
  /**
   * Opens a log with other options. Exactly one of the returned functions is called, once.
   *
   * @throws HubgateError `log-failed` if a file cannot be opened; the log then stays as it is
   */
  prepare(options: LogOptions): { commit(): void; discard(): void };
}

/** An open log. Call `close` when it is no longer needed. */
export interface OpenedLog {
  readonly log: Logger;
  close(): void;
}

interface OpenPino {
  readonly pino: PinoLogger;
  close(): void;
}

/** Bytes that wait for a reader of standard output or error. Beyond it, lines are dropped. */
const MAX_WAITING_BYTES = 1024 * 1024;
/** Time after which lines that wait are written again. */
const RETRY_MS = 50;
/** How long the end of the process waits for a slow reader. */
const FINAL_WAIT_MS = 1000;

/** What `consoleLine` reads. */
const TEXT_MEMBERS = compileLogLines('json', defaultLogEncoding);

interface SharedFile {
  readonly file: LogFile;
  users: number;
}

/**
 * The logs of a process: JSON lines, or text for a person at a terminal. Lines are written before the call
 * returns, so that the last ones before a crash are not lost. If the reader of standard output is slow, they wait
 * in memory instead, and the process goes on. A file is opened once, however many logs use
 * it, and is closed with the last of them.
 */
export class Logs {
  readonly #files = new Map<string, SharedFile>();

  /**
   * Creates the process's own log.
   *
   * @throws HubgateError `log-failed`
   */
  createLogger(options: LogOptions): ConfigurableLogger {
    let current = this.#openPino(options);
    return {
      ...loggerOn(() => current.pino),
      prepare: (next) => {
        const prepared = this.#openPino(next);
        return {
          commit: () => {
            current.close();
            current = prepared;
          },
          discard: () => prepared.close(),
        };
      },
    };
  }

  /**
   * Opens a log that a site names.
   *
   * @throws HubgateError `log-failed`
   */
  readonly open = (options: LogOptions): OpenedLog => {
    const { pino, close } = this.#openPino(options);
    return { log: loggerOn(() => pino), close };
  };

  /** Reopens files that were moved away (`SIGUSR1`). */
  reopen(): void {
    for (const { file } of this.#files.values()) file.reopen();
  }

  #openPino(options: LogOptions): OpenPino {
    const { level, format, output } = options;
    const isFile = output !== 'stdout' && output !== 'stderr';
    const terminal = output === 'stdout' ? process.stdout : process.stderr;
    const asText = format === 'console' || (format === 'auto' && !isFile && terminal.isTTY);
    const coloured = !isFile && terminal.isTTY && (process.env['NO_COLOR'] ?? '') === '';
    const { write, close } = isFile
      ? this.#openFile(options)
      : { write: standardOutput(output), close: () => {} };
    const { fields, ...lines } = compileLogLines(format, options.encoding);
    const members = asText ? TEXT_MEMBERS : lines;
    const settings = {
      level,
      base: null,
      messageKey: members.messageKey,
      timestamp: () => `,"${members.timeKey}":${members.time(new Date())}`,
      formatters: {
        level: (label: string) => ({ [members.levelKey]: members.level(label) }),
        log: (line: Record<string, unknown>) => ({ ...fields(line) }),
      },
    };
    const log = pino(settings, {
      write: (line) => write(asText ? consoleLine(line, coloured) : printable(line)),
    });
    return { pino: log, close };
  }

  #openFile({ output: path, roll, mode }: LogOptions): {
    write(line: string): void;
    close(): void;
  } {
    const key = JSON.stringify([path, roll, mode]);
    let shared = this.#files.get(key);
    if (shared === undefined) {
      const file = new LogFile({ path, roll, mode, clock: systemClock, onTrouble: complain });
      shared = { file, users: 0 };
      this.#files.set(key, shared);
    }
    const held = shared;
    held.users += 1;
    return {
      write: (line) => held.file.write(line),
      close: () => {
        held.users -= 1;
        if (held.users > 0) return;
        this.#files.delete(key);
        held.file.close();
      },
    };
  }
}

function loggerOn(pino: () => PinoLogger, fields: LogFields = {}): Logger {
  return {
    debug: (message, more) => pino().debug({ ...fields, ...more }, message),
    info: (message, more) => pino().info({ ...fields, ...more }, message),
    warn: (message, more) => pino().warn({ ...fields, ...more }, message),
    error: (message, more) => pino().error({ ...fields, ...more }, message),
    child: (more) => loggerOn(pino, { ...fields, ...more }),
  };
}

/**
 * Redirects errors that libraries print to the log, at level debug and without a stack. The code that calls a
 * library reports the failure itself. lmdb also prints each failed commit, which would fill the log if the
 * disk is full.
 */
export function logConsoleErrors(log: Logger): void {
  console.error = (...printed: readonly unknown[]): void => {
    const text = printed.map((part) => (part instanceof Error ? messageOf(part) : String(part)));
    log.debug('A library has printed an error', { text: text.join(' ') });
  };
}

/** The last resort for a log that cannot be written. If nothing reads it, or its disk is full, no harm is done. */
function complain(text: string): void {
  standardOutput('stderr')(`hubgate: ${text}\n`);
}

const standard = new Map<string, (line: string) => void>();

/** Each is opened once. The streams of `process` would wait for the reader of a terminal, and end the process on errors. */
function standardOutput(output: 'stdout' | 'stderr'): (line: string) => void {
  const write = standard.get(output) ?? openStandard(output === 'stdout' ? 1 : 2);
  standard.set(output, write);
  return write;
}

/** Returns a function that writes a line to standard output or error and never blocks. */
function openStandard(fd: 1 | 2): (line: string) => void {
  const target = nonBlocking(fd);
  /** Whole lines, because each is written at once: the lines of several workers do not mix. */
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let dropped = 0;
  let why = '';
  let retry: NodeJS.Timeout | null = null;
  const writeFirst = (bytes: Buffer): void => {
    const written = writeSync(target, bytes);
    waitingBytes -= written;
    if (written < bytes.length) waiting[0] = bytes.subarray(written);
    else waiting.shift();
  };
  /** Returns whether only a reader is missing, who may read later. */
  const writeWaiting = (): boolean => {
    try {
      for (let [first] = waiting; first !== undefined; [first] = waiting) writeFirst(first);
    } catch (error) {
      // The reader is slow or has gone, or the disk is full.
      why = codeOf(error) ?? messageOf(error);
      if (why !== 'EAGAIN') return false;
      retry ??= setTimeout(() => {
        retry = null;
        writeWaiting();
      }, RETRY_MS).unref();
      return true;
    }
    if (dropped === 0) return false;
    const lost = dropped;
    dropped = 0;
    const what = why === 'EAGAIN' ? 'Nobody has read the log' : `The log was not writable (${why})`;
    complain(`${what} for a while; lines lost: ${lost}`);
    return false;
  };
  process.once('exit', () => {
    const end = systemClock.monotonic() + FINAL_WAIT_MS;
    while (writeWaiting() && systemClock.monotonic() < end) sleepSync(RETRY_MS);
  });
  return (line) => {
    const bytes = Buffer.from(line);
    if (waitingBytes + bytes.length > MAX_WAITING_BYTES) dropped += 1;
    else {
      waiting.push(bytes);
      waitingBytes += bytes.length;
    }
    writeWaiting();
  };
}

/**
 * Opens a pipe or a terminal once more, so that writing fails instead of waiting for a reader. Setting this on the
 * descriptor itself would set it for the other processes that share it.
 */
function nonBlocking(fd: 1 | 2): number {
  const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
  try {
    const found = fstatSync(fd);
    if (!found.isFIFO() && !found.isCharacterDevice()) return fd;
    return openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    // Not Linux, or a terminal of another user.
    return fd;
  }
}

const RESET = '\u001b[0m';
const DIM = '\u001b[2m';
const LEVEL_COLOURS: Readonly<Record<string, string>> = {
  debug: DIM,
  info: '\u001b[32m',
  warn: '\u001b[33m',
  error: '\u001b[1;31m',
};

/**
 * A log line for a person: `12:00:00.000 WARN message key=value`. Access lines begin with the request and the
 * response.
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

import type { LogFields, Logger } from '../../src/kernel/log.ts';

export interface LogLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: LogFields;
}

/** A logger whose lines a test can wait for. */
export class RecordedLog implements Logger {
  readonly lines: LogLine[] = [];
  readonly #waiting = new Set<() => void>();

  debug(message: string, fields: LogFields = {}): void {
    this.#add({ level: 'debug', message, fields });
  }
  info(message: string, fields: LogFields = {}): void {
    this.#add({ level: 'info', message, fields });
  }
  warn(message: string, fields: LogFields = {}): void {
    this.#add({ level: 'warn', message, fields });
  }
  error(message: string, fields: LogFields = {}): void {
    this.#add({ level: 'error', message, fields });
  }
  child(): Logger {
    return this;
  }

  /** Adds a line that a program has printed as JSON; other lines are passed over. */
  addJson(text: string): void {
    if (!text.startsWith('{')) return;
    const {
      level,
      msg,
      time: _time,
      ...fields
    } = JSON.parse(text) as LogFields & {
      readonly level: LogLine['level'];
      readonly msg: string;
    };
    this.#add({ level, message: msg, fields });
  }

  /** The lines with this message. */
  of(message: string): readonly LogLine[] {
    return this.lines.filter((line) => line.message === message);
  }

  /** Resolves to the so-manieth line with this message, once it is there. */
  async says(message: string, count = 1): Promise<LogLine> {
    for (;;) {
      const line = this.of(message)[count - 1];
      if (line !== undefined) return line;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  #add(line: LogLine): void {
    this.lines.push(line);
    for (const wake of this.#waiting) {
      this.#waiting.delete(wake);
      wake();
    }
  }
}

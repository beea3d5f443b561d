/** What a log line carries beside its message. Values are printed as JSON. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Where the program speaks to its operator. Nothing that a client sent goes into `message`;
 * it goes into `fields`, where it is escaped. Secrets go nowhere.
 */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A logger that adds `fields` to each of its lines. */
  child(fields: LogFields): Logger;
}

const ignore = (): void => {};

/** A logger that says nothing: the default of the library doors. */
export const silentLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  child: () => silentLogger,
};

/** Further data of a log line. Values are printed as JSON. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * The log for the operator. Data from clients must not be in `message`; put it into `fields`, where it is
 * escaped. Secrets must be in neither.
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

/** A logger that writes nothing: the default of the library's entry points. */
export const silentLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  child: () => silentLogger,
};

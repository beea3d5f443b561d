/**
 * The one error class of hubgate. `code` is stable and meant for programs; `message` says what
 * happened, where, and what to do about it, and never contains a secret.
 */
export class HubgateError extends Error {
  /** A stable identifier in lower-case kebab-case, for instance `transport-closed`. */
  readonly code: string;

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'HubgateError';
    this.code = code;
  }
}

/** Does nothing: for an error that is reported elsewhere, and as a callback before there is one. */
export function ignore(): void {}

/** The message of any thrown value, for logs. */
export function messageOf(thrown: unknown): string {
  // Node's error for a name with several addresses, none of which could be connected to, has no message of its own.
  if (thrown instanceof AggregateError && thrown.message === '') {
    return thrown.errors.map(messageOf).join('; ');
  }
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** The `code` of a thrown value if it is a string (`ENOENT`, `ECONNRESET`, …). */
export function codeOf(thrown: unknown): string | undefined {
  if (typeof thrown !== 'object' || thrown === null || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' ? thrown.code : undefined;
}

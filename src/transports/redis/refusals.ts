import { messageOf } from '../../kernel/error.ts';

/** What a server says of a command that it has not carried out. */
const NOT_DONE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOREPLICAS|NOSCRIPT|UNBLOCKED|BUSY|OOM|MISCONF|NOPERM|NOAUTH|WRONGTYPE|TOONEW)/;
/** Of these, those that another server, or this one a little later, would carry out. */
const ELSEWHERE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOSCRIPT|UNBLOCKED)/;

/** What is known of a command that has failed. */
export interface RedisError {
  /** In the server's words, or in those of the lost connection. */
  readonly message: string;
  /** The server says that it has not carried it out; else nobody knows. */
  readonly isNotDone: boolean;
  /** Another server would carry it out: this session is of no more use. */
  readonly isElsewhere: boolean;
}

export function refusalOf(error: unknown): RedisError {
  const message = saidOf(error);
  return { message, isNotDone: NOT_DONE.test(message), isElsewhere: ELSEWHERE.test(message) };
}

/**
 * Redis 6 wraps what a command in a script was refused with; it refuses only the first that writes,
 * so nothing has been carried out then either.
 */
function saidOf(error: unknown): string {
  const message = messageOf(error);
  return /^ERR Error running script .*@user_script: ?\d+: -(.+)$/s.exec(message)?.[1] ?? message;
}

import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/**
 * SQLSTATEs after which another connection would do it: the server ends, is a standby now, or its tables have been changed or
 * removed.
 */
const ELSEWHERE = /^(?:08...|0A000|25006|25P03|3F000|42883|42P01|53300|57P0[1-5]|58...)$/;
/** SQLSTATEs of a state that passes: locks, conflicts of transactions, a full disk, too many connections. */
const PASSING = /^(?:08...|0A000|25006|25P03|40...|53...|55...|57...|58...)$/;
/** The server ends while a commit waits for a standby: the commit may be stored. */
const MAY_BE_DONE = /^(?:08...|40003|57P0[1-5])$/;

/** The known facts about a failed query or connection. */
export interface PostgresFault {
  /** What the server says, or why the connection failed; without any secret. */
  readonly message: string;
  /** The SQLSTATE; null if the server has not answered. */
  readonly state: string | null;
  /**
   * `away`: the same may succeed later, on this server or on another. `refused`: it will not, unless somebody changes
   * the statement, the rights or the configuration.
   */
  readonly kind: 'away' | 'refused';
  /** The server reports that the transaction has changed nothing; otherwise that is unknown. */
  readonly isNotDone: boolean;
  /** The connection is of no further use; the next one may lead to another server. */
  readonly isElsewhere: boolean;
}

/** Classifies what `PostgresConnection` and `connectPostgres` throw. */
export function faultOf(error: unknown): PostgresFault {
  const cause = error instanceof HubgateError && error.cause !== undefined ? error.cause : error;
  const code = codeOf(cause);
  const state = code !== undefined && /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code) ? code : null;
  const message = messageOf(error);
  if (state === null) {
    return { message, state, kind: 'away', isNotDone: false, isElsewhere: true };
  }
  return {
    message,
    state,
    kind: PASSING.test(state) ? 'away' : 'refused',
    isNotDone: !MAY_BE_DONE.test(state),
    isElsewhere: ELSEWHERE.test(state),
  };
}

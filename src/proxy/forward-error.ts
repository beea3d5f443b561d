import { HubgateError, messageOf } from '../kernel/error.ts';

/** How far the exchange with an upstream had come when it failed. */
export type ForwardPhase = 'unsent' | 'sent' | 'responding';

/**
 * An exchange with an upstream that failed: `upstream-timeout`, `upstream-broken`,
 * `unsendable-request` when the request is at fault, `upstream-aborted` when the client left,
 * `upstream-busy` when too many wait for a connection, `upstream-refused` when the upstream says that
 * it has not processed the request.
 */
export class ForwardError extends HubgateError {
  readonly phase: ForwardPhase;

  constructor(code: string, phase: ForwardPhase, cause: unknown) {
    super(code, `${phase}: ${messageOf(cause)}`, { cause });
    this.name = 'ForwardError';
    this.phase = phase;
  }
}

import { HttpError } from '../http/errors.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/** The phase in which the exchange with an upstream failed. */
export type ForwardPhase = 'unsent' | 'sent' | 'responding';

/** The phases as the log names them. */
const PHASES: Readonly<Record<ForwardPhase, string>> = {
  unsent: 'the request was not sent',
  sent: 'no response',
  responding: 'the response is incomplete',
};

/**
 * A failed exchange with an upstream: `upstream-timeout`, `upstream-broken`, `unsendable-request` for an
 * invalid request, `upstream-aborted` if the client left, `upstream-busy` if too many requests wait for a
 * connection, `upstream-refused` if the upstream reports that it has not processed the request, or a kept
 * connection ended before the request was sent.
 */
export class ForwardError extends HubgateError {
  readonly phase: ForwardPhase;

  constructor(code: string, phase: ForwardPhase, cause: unknown) {
    super(code, `${PHASES[phase]}: ${describe(cause)}`, { cause });
    this.name = 'ForwardError';
    this.phase = phase;
  }
}

/** The message of a cause; OpenSSL's are lines of its source code. */
function describe(cause: unknown): string {
  const text = messageOf(cause);
  if (/wrong version number|packet length too long/.test(text)) {
    return 'the upstream does not speak TLS on this port; write http:// for an upstream without TLS';
  }
  if (/alert (?:certificate required|handshake failure|bad certificate)/.test(text)) {
    return 'the upstream refused the TLS handshake; it may require a client certificate, which hubgate does not send';
  }
  return text;
}

/** Requests that wait for a connection to one upstream. Further ones are refused with 503. */
const MAX_WAITING_REQUESTS = 1_000;

/** @throws ForwardError `upstream-busy` if this many requests are too many to wait */
export function refuseIfBusy(waiting: number): void {
  if (waiting < MAX_WAITING_REQUESTS) return;
  const message = `${MAX_WAITING_REQUESTS} requests are already waiting`;
  const cause = new HubgateError('upstream-busy', message);
  throw new ForwardError('upstream-busy', 'unsent', cause);
}

/** The error of a request whose client leaves before there is a connection for it. */
export function leftWaiting(): ForwardError {
  const message = 'The client disconnected while its request waited';
  return new ForwardError('upstream-aborted', 'unsent', new HubgateError('client-left', message));
}

const TIMEOUTS = new Set(['upstream-timeout', 'upstream-write-timeout', 'ETIMEDOUT']);

/** The error of an exchange that ended with `error`. An HttpError comes from the body and is kept. */
export function exchangeFailure(
  error: Error,
  phase: ForwardPhase,
  clientLeft: boolean,
): ForwardError | HttpError {
  if (error instanceof HttpError) return error;
  const code = codeOf(error) ?? '';
  if (clientLeft || code === 'client-left') {
    return new ForwardError('upstream-aborted', phase, error);
  }
  if (code === 'unsendable-request') return new ForwardError('unsendable-request', phase, error);
  const kind = TIMEOUTS.has(code) ? 'upstream-timeout' : 'upstream-broken';
  return new ForwardError(kind, phase, error);
}

/** RFC 9110 §9.2.1: a request with such a method may be repeated without asking the client. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/**
 * Only what no upstream can have acted on, or what is safe to do twice.
 *
 * @param isSafeTwice whether the request is
 */
export function mayRepeat(
  isSafeTwice: boolean,
  { failure, consumed }: { failure: ForwardError; consumed: boolean },
): boolean {
  if (consumed || failure.code === 'upstream-aborted' || failure.code === 'unsendable-request') {
    return false;
  }
  if (failure.phase === 'unsent') return true;
  return failure.code === 'upstream-broken' && isSafeTwice;
}

export function toHttpError(failure: ForwardError): HttpError {
  switch (failure.code) {
    case 'upstream-aborted':
      return new HttpError(499, 'the client left', { cause: failure });
    case 'unsendable-request':
      return new HttpError(400, failure.message, { cause: failure });
    case 'upstream-busy':
      return new HttpError(503, failure.message, { cause: failure });
    case 'upstream-timeout':
      return new HttpError(504, failure.message, { cause: failure });
    default:
      return new HttpError(502, failure.message, { cause: failure });
  }
}

export function noneLeft(failure: ForwardError | null): HttpError {
  return failure === null ? new HttpError(503, 'no upstream is healthy') : toHttpError(failure);
}

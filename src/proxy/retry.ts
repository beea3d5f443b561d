import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import type { ForwardError } from './forward-error.ts';

/** RFC 9110 §9.2.1: a request with such a method may be repeated without asking the client. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/** Only what no upstream can have acted on, or what is safe to do twice. */
export function mayRepeat(
  method: string,
  { failure, consumed }: { failure: ForwardError; consumed: boolean },
): boolean {
  if (consumed || failure.code === 'upstream-aborted' || failure.code === 'unsendable-request') {
    return false;
  }
  if (failure.phase === 'unsent') return true;
  return failure.code === 'upstream-broken' && isSafe(method);
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

/** Waits; at most until the client leaves. */
export function pause(clock: Clock, ms: number, exchange: Exchange): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      cancel();
      forget();
      resolve();
    };
    const cancel = clock.after(ms, done);
    const forget = exchange.onAbandoned(done);
  });
}

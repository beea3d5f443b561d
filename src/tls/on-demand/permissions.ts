import type { OnDemandOptions } from '../../config/config.ts';
import { setNewest } from '../../kernel/collections.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { requireUrl } from '../../kernel/parse.ts';
import { withoutSecretParts } from '../../kernel/secret.ts';
import { Semaphore } from '../../kernel/semaphore.ts';

/** Time for one response. */
const ASK_MS = 5_000;
/** Requests in progress at the same time. As many others can wait. */
const MAX_ASKING = 16;
const MAX_WAITING = 256;
/** Remembered answers, and for how long. The number is limited because any client can cause a request. */
const MAX_ANSWERS = 10_000;
const ALLOWED_MS = 10 * 60_000;
const REFUSED_MS = 60_000;
/** How long a failure of the ask service is remembered. */
const FAILED_MS = 5_000;
/**
 * A host name that authorities certify (RFC 1123 §2.1). It has several labels, so it does not name a local
 * machine.
 */
const HOST_NAME =
  /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)+$/;

interface Answer {
  readonly result: Promise<boolean>;
  /** Whether the answer has arrived and was negative. */
  refused: boolean;
  /** Monotonic; milliseconds. */
  until: number;
}

/**
 * Whether certificates may be obtained for names that are not in a configuration. The operator's app decides.
 */
export class Permissions {
  readonly #clock: Clock;
  readonly #queue = new Semaphore(MAX_ASKING);
  readonly #answers = new Map<string, Answer>();
  #asking = 0;
  /** Start times of orders, the oldest first; monotonic. */
  #begun: number[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Asks with `GET <ask>?domain=<name>`: 2xx allows the name, any other status does not.
   *
   * @param name in lower case, as the client sent it
   * @throws HubgateError `on-demand-ask-failed` if there is no response
   */
  allows(name: string, { ask }: OnDemandOptions): Promise<boolean> {
    if (!isHostName(name)) return Promise.resolve(false);
    const key = `${ask} ${name}`;
    const known = this.#known(key);
    if (known !== undefined) return known.result;
    if (this.#asking >= MAX_ASKING + MAX_WAITING) {
      return Promise.reject(failed('too many names are being checked'));
    }
    return this.#remember(key, this.#ask(name, ask));
  }

  /** Whether a refusal is known without a request and without file access. */
  refuses(name: string, { ask }: OnDemandOptions): boolean {
    return !isHostName(name) || this.#known(`${ask} ${name}`)?.refused === true;
  }

  #known(key: string): Answer | undefined {
    const answer = this.#answers.get(key);
    return answer !== undefined && answer.until > this.#clock.monotonic() ? answer : undefined;
  }

  /** Uses one of the orders that may begin within the interval. Returns false if none is left. */
  mayOrder({ intervalMs, burst }: OnDemandOptions): boolean {
    if (intervalMs === 0) return true;
    const now = this.#clock.monotonic();
    this.#begun = this.#begun.filter((at) => at > now - intervalMs);
    if (this.#begun.length >= burst) return false;
    this.#begun.push(now);
    return true;
  }

  #remember(key: string, result: Promise<boolean>): Promise<boolean> {
    const answer: Answer = { result, refused: false, until: Number.POSITIVE_INFINITY };
    setNewest(this.#answers, key, answer, MAX_ANSWERS);
    const keep = (ms: number): void => {
      answer.until = this.#clock.monotonic() + ms;
    };
    result.then(
      (allowed) => {
        answer.refused = !allowed;
        keep(allowed ? ALLOWED_MS : REFUSED_MS);
      },
      () => keep(FAILED_MS),
    );
    return result;
  }

  async #ask(name: string, ask: string): Promise<boolean> {
    this.#asking += 1;
    const signal = AbortSignal.timeout(ASK_MS);
    try {
      const url = requireUrl(ask);
      url.searchParams.set('domain', name);
      return await this.#queue.run(signal, async () => {
        const response = await fetch(url, { redirect: 'manual', signal });
        await response.body?.cancel();
        return response.ok;
      });
    } catch (cause) {
      const why = withoutSecretParts(messageOf(cause));
      throw failed(signal.aborted ? `no answer within ${ASK_MS} ms` : why, cause);
    } finally {
      this.#asking -= 1;
    }
  }
}

/** The last label is not a number, as it would be in an IP address. */
function isHostName(name: string): boolean {
  return HOST_NAME.test(name) && !/^\d+$/.test(name.slice(name.lastIndexOf('.') + 1));
}

function failed(why: string, cause?: unknown): HubgateError {
  const message = `on_demand_tls: the ask service failed: ${why}`;
  return new HubgateError('on-demand-ask-failed', message, { cause });
}

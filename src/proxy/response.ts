import { STATUS_CODES } from 'node:http';
import type { Writable } from 'node:stream';
import type { RouteConfig } from '../config/routes.ts';
import type { Exchange, Expand, Handler, Next, ResponseHead } from '../http/exchange.ts';
import { DeferredBody } from '../http/deferred-body.ts';
import { replaceStatus, ResponseWatch } from '../http/exchange-response.ts';
import {
  type ApplyOperations,
  compileOperations,
  compileResponseMatcher,
} from '../http/header-operations.ts';
import type { HttpError } from '../http/errors.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import type { ShareResponse } from './shared-forwarding.ts';
import type { Choice } from './balancing.ts';
import { BufferedResponse, type BufferSpace } from './buffers.ts';
import { ForwardError } from './forward-error.ts';
import type { ReceivedProtocol } from './forwarding.ts';
import { clientResponseFields } from './header-fields.ts';
import { dropForbiddenTrailers } from './trailers.ts';
import type { UpgradeSink } from './upgrade-request.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';

/** A response of an upstream for which routes run. */
export interface InterceptedResponse {
  readonly status: number;
  /** The fields as the client would receive them. */
  readonly headers: HeaderList;
  /** Sends it with this status; null if its body is not kept. */
  readonly send: ((status: number) => void) | null;
}

const intercepted = new WeakMap<Exchange, InterceptedResponse>();

/** The response for which the routes of an exchange run; undefined outside of `handle_response`. */
export function interceptedResponse(exchange: Exchange): InterceptedResponse | undefined {
  return intercepted.get(exchange);
}

/** The routes that answer instead of an upstream. */
interface Interception {
  readonly answer: Handler;
  /** They may want its response after all. */
  readonly copies: boolean;
}

/** How much of a body waits before the response begins, in bytes, and the memory for it. */
export interface ResponseBuffers {
  readonly limit: number;
  readonly space: BufferSpace;
}

/**
 * A proxy that asks whether a request is allowed. Its upstreams get a request of their own: no body, and no upgrade.
 * What they answer is not a page of the app.
 */
export interface Authorization {
  /**
   * Judges a response by its status and its fields as the upstream has sent them.
   *
   * @returns how an allowed request goes on; null if the response goes to the client or to its routes
   */
  readonly judge: (exchange: Exchange, status: number, headers: HeaderList) => Handler | null;
}

/** The changes of a proxy to the responses of its upstreams. */
export interface ResponseRules {
  /** null: the proxy serves what its upstreams answer. */
  readonly authorization: Authorization | null;
  /** null: the fields stay as they are. */
  readonly headerDown: ApplyOperations | null;
  /** The routes that respond instead of the upstream, or the status that replaces that of its response. */
  intercept(status: number, headers: HeaderList): Interception | number | null;
  readonly expand: Expand;
  /** Whether `header_down`, or what runs after the proxy, uses placeholders such as `{rp.status_code}`. */
  readonly usesUpstreamResponse: boolean;
}

export interface ResponseRuleOptions
  extends Pick<ResponseRules, 'expand' | 'authorization' | 'usesUpstreamResponse'> {
  /** Compiles the routes of `handle_response`. */
  readonly compileRoutes: (routes: readonly RouteConfig[]) => Handler;
  /** Whether such routes want the response that they are run for after all. */
  readonly copiesResponse: (routes: readonly RouteConfig[]) => boolean;
}

/** @throws HubgateError `invalid-pattern` */
export function compileResponseRules(
  config: Pick<ReverseProxyConfig, 'handleResponse' | 'headerDown'>,
  options: ResponseRuleOptions,
): ResponseRules {
  const { expand, compileRoutes, copiesResponse, authorization, usesUpstreamResponse } = options;
  const interceptors = config.handleResponse.map((one) => ({
    matches: compileResponseMatcher(one),
    answer: one.replaceStatus ?? {
      answer: compileRoutes(one.routes),
      copies: copiesResponse(one.routes),
    },
  }));
  return {
    authorization,
    headerDown: config.headerDown.length === 0 ? null : compileOperations(config.headerDown),
    expand,
    usesUpstreamResponse,
    intercept: (status, headers) => {
      for (const { matches, answer } of interceptors) if (matches(status, headers)) return answer;
      return null;
    },
  };
}

/**
 * RFC 9110 §15: statuses begin at 100. A 101 that names no protocol, or that nobody asked for, is no switch.
 *
 * @throws ForwardError `upstream-broken`
 */
function refuseStatus(status: number): void {
  if (status < 100 || status === 101) throw unreadable(`status ${status}`);
}

/**
 * RFC 9112 §6.1: only chunked is decoded here, and the field is not forwarded.
 *
 * @throws ForwardError `upstream-broken`
 */
function refuseCoding(headers: HeaderList): void {
  const coding = headers.combined('transfer-encoding');
  if (coding === undefined || coding.trim().toLowerCase() === 'chunked') return;
  throw unreadable(`the transfer coding ${JSON.stringify(coding)}`);
}

function unreadable(what: string): ForwardError {
  const cause = new HubgateError('upstream-broken', `The upstream answered with ${what}`);
  return new ForwardError('upstream-broken', 'sent', cause);
}

/** Sends the response of one upstream to the client. */
export class UpstreamResponse implements UpgradeSink {
  /** The routes that respond instead when the exchange with the upstream has ended. */
  interceptor: Handler | null = null;
  /** The routes have answered otherwise, so that the end of the exchange is no failure of the upstream. */
  isDropped = false;
  /** The routes have sent the response that has waited for them. */
  #isSent = false;
  /** Why the response that waits for routes is incomplete. */
  #failure: HttpError | null = null;
  readonly #exchange: Exchange;
  readonly #choice: Pick<Choice, 'cookie'>;
  readonly #rules: ResponseRules;
  readonly #onStatus: (status: number) => void;
  readonly #share: ShareResponse | null;
  readonly #next: Next;
  /** The body that waits for the decision of routes. */
  #held: DeferredBody | null = null;
  /** The body of the response that has begun. */
  #begun: Writable | null = null;
  readonly #buffers: ResponseBuffers | null;
  /** The body that waits until it is complete or too large to wait. */
  #buffered: BufferedResponse | null = null;
  #releaseSpace = ignore;

  constructor(
    exchange: Exchange,
    choice: Pick<Choice, 'cookie'>,
    rules: ResponseRules,
    onStatus: (status: number) => void,
    next: Next,
    share: ShareResponse | null = null,
    buffers: ResponseBuffers | null = null,
  ) {
    this.#buffers = buffers;
    this.#next = next;
    this.#share = share;
    this.#exchange = exchange;
    this.#choice = choice;
    this.#rules = rules;
    this.#onStatus = onStatus;
  }

  onInformation(status: number, headers: HeaderList, received: ReceivedProtocol): void {
    refuseStatus(status);
    // 100 is for the gateway: the client's own expectation is handled when its body is read.
    if (status !== 100) this.#exchange.inform(status, clientResponseFields(headers, received));
  }

  onHead(
    status: number,
    headers: HeaderList,
    received: ReceivedProtocol,
    isWhole = false,
  ): Writable | null {
    refuseStatus(status);
    refuseCoding(headers);
    this.#onStatus(status);
    const allowed = this.#rules.authorization?.judge(this.#exchange, status, headers) ?? null;
    const { usesUpstreamResponse } = this.#rules;
    if (allowed !== null) {
      if (usesUpstreamResponse) this.#setPlaceholders(status, headers);
      this.interceptor = allowed;
      return null;
    }
    const answer = this.#rules.intercept(status, headers);
    const isOfRoutes = answer !== null && typeof answer !== 'number';
    if (!isOfRoutes && this.#isShared(status, headers, received)) {
      return this.#exchange.begin({ status, headers, source: this.#source, isWhole });
    }
    if (isOfRoutes || usesUpstreamResponse) this.#setPlaceholders(status, headers);
    const head = this.#head(status, headers, received, isWhole);
    if (answer === null) return this.#begin(head);
    if (typeof answer === 'number') {
      replaceStatus(head, answer);
      return this.#begin(head);
    }
    return answer.copies ? this.#hold(answer.answer, head) : this.#leave(answer.answer, head);
  }

  /** The exchange with the upstream has failed: nothing more will come. */
  fail(): void {
    this.#buffered?.destroy();
    this.#releaseSpace();
  }

  /** Whether routes run that may respond instead. They need not know that the response will stay incomplete. */
  get isForRoutes(): boolean {
    return this.#held !== null && !this.#isSent;
  }

  /** Aborts the response of the client unless other handlers respond instead. Then only they could need it. */
  breakOff(failure: HttpError): void {
    if (this.isForRoutes) this.#failure = failure;
    else this.#exchange.abort(this.#begun);
  }

  get #source(): ResponseHead['source'] {
    return this.#rules.authorization === null ? 'upstream' : 'gateway';
  }

  /** Whether routes have begun to run, so that there is no second try. */
  get isHeld(): boolean {
    return this.#held !== null;
  }

  /** Whether an earlier handler holds the response for routes, or has dropped it. */
  get isHeldOutside(): boolean {
    return this.#begun instanceof DeferredBody && this.#begun.isHeld;
  }

  /** The routes run once the exchange with the upstream is over. */
  #leave(answer: Handler, { status, headers }: ResponseHead): null {
    intercepted.set(this.#exchange, { status, headers, send: null });
    this.#noteReplaced();
    this.interceptor = answer;
    return null;
  }

  /**
   * The cache sees neither what the response of the upstream says about storing, nor whether it has let the request
   * through. So nothing that is sent instead is for others.
   */
  #noteReplaced(): void {
    this.#exchange.dependsOn?.('client');
  }

  /** The routes run at once, and the body waits for them. */
  #hold(answer: Handler, head: ResponseHead): DeferredBody {
    const exchange = this.#exchange;
    const held = new DeferredBody();
    this.#held = held;
    let isCopied = false;
    const watch = new ResponseWatch(exchange, () => {
      if (!isCopied) this.#noteReplaced();
    });
    const send = (status: number): void => {
      if (this.#failure !== null) throw this.#failure;
      isCopied = true;
      const sent = { ...head };
      replaceStatus(sent, status);
      held.decide(this.#beginNow(sent));
      this.#isSent = true;
    };
    intercepted.set(exchange, { status: head.status, headers: head.headers, send });
    const run = async (): Promise<void> => {
      try {
        await answer(exchange, this.#next);
        const isAnswered = exchange.begun || watch.hasBegun;
        if (this.#failure !== null && !isAnswered) throw this.#failure;
      } finally {
        watch.stop();
        if (this.#isSent || held.writableEnded) held.decide(null);
        else {
          // It may be endless, so the upstream is told.
          this.isDropped = true;
          held.destroy(new HubgateError('client-left', 'The routes answered otherwise'));
        }
      }
    };
    const running = run();
    // `interceptor` returns it later. Until then, a rejection must not count as unhandled.
    running.catch(ignore);
    this.interceptor = () => running;
    return held;
  }

  onEnd(body: Writable, trailers: HeaderList): void {
    dropForbiddenTrailers(trailers);
    if (body === this.#buffered) {
      this.#buffered.finish(!trailers.isEmpty, (target) => this.#exchange.end(target, trailers));
    } else this.#exchange.end(body, trailers);
  }

  /** Each client applies the rules to a shared response for itself. */
  #isShared(status: number, headers: HeaderList, received: ReceivedProtocol): boolean {
    const { upstream } = this.#exchange;
    if (this.#share === null || upstream === null) return false;
    return this.#share({ status, headers, received, upstream, cookie: this.#choice.cookie });
  }

  switched(headers: HeaderList): ResponseHead {
    const protocol = headers.combined('upgrade') ?? '';
    if (protocol.toLowerCase() !== 'websocket') {
      throw unreadable(`a switch to ${JSON.stringify(protocol)} instead of websocket`);
    }
    this.#onStatus(101);
    return this.#head(101, headers, '1.1');
  }

  #begin(head: ResponseHead): Writable {
    const exchange = this.#exchange;
    if (this.#buffers === null) return this.#beginNow(head);
    const { limit, space } = this.#buffers;
    const isStream = /^text\/event-stream\b/i.test(head.headers.get('content-type') ?? '');
    const isWhole = head.isWhole === true || exchange.method === 'HEAD';
    const release = isWhole || isStream ? null : space.take(limit);
    if (release === null) return this.#beginNow(head);
    this.#buffered = new BufferedResponse(limit, (length) => {
      const { headers } = head;
      const mayHaveLength = length !== null && head.status !== 204 && head.status !== 304;
      if (mayHaveLength && !headers.has('content-length'))
        headers.append('Content-Length', String(length));
      return this.#beginNow(head);
    });
    this.#releaseSpace = release;
    return this.#buffered.once('close', release);
  }

  #beginNow(head: ResponseHead): Writable {
    const body = this.#exchange.begin(head);
    this.#begun = body;
    return body;
  }

  #head(
    status: number,
    headers: HeaderList,
    received: ReceivedProtocol,
    isWhole = false,
  ): ResponseHead {
    const passed = clientResponseFields(headers, received);
    this.#rules.headerDown?.(passed, (text) => this.#rules.expand(text, this.#exchange, passed));
    if (this.#choice.cookie !== undefined) passed.append('Set-Cookie', this.#choice.cookie);
    return { status, headers: passed, source: this.#source, isBesidePreset: true, isWhole };
  }

  /** For routes of `handle_response`, and for what runs after the proxy. */
  #setPlaceholders(status: number, headers: HeaderList): void {
    const { variables } = this.#exchange;
    variables.set('rp.status_code', String(status));
    variables.set('rp.status_text', `${status} ${STATUS_CODES[status] ?? ''}`.trimEnd());
    for (const [name] of headers) {
      const value = fieldText(headers.combined(name) ?? '');
      variables.set(`rp.header.${name.toLowerCase()}`, value);
      variables.set(`http.response.header.${name.toLowerCase()}`, value);
    }
  }
}

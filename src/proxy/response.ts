import type { Writable } from 'node:stream';
import type { RouteConfig } from '../config/routes.ts';
import { compileWildcard } from '../http/linear-regexp.ts';
import type { Exchange, Expand, Handler, ResponseHead } from '../http/exchange.ts';
import { type ApplyOperations, compileOperations } from '../http/header-operations.ts';
import type { HeaderList } from '../http/header-list.ts';
import { HubgateError } from '../kernel/error.ts';
import type { ResponseRecorder } from './response-recorder.ts';
import type { Choice } from './balancing.ts';
import { ForwardError } from './forward-error.ts';
import type { ReceivedProtocol } from './forwarding.ts';
import { clientResponseFields } from './header-fields.ts';
import { statusMatcher } from '../config/well-formed.ts';
import { dropForbiddenTrailers } from './trailers.ts';
import type { UpgradeSink } from './upgrade-request.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';

/** What a proxy does to the responses of its upstreams. */
export interface ResponseRules {
  readonly headerDown: ApplyOperations;
  /** The routes that answer instead of the upstream, or the status with which its response passes. */
  intercept(status: number, headers: HeaderList): Handler | number | null;
  readonly expand: Expand;
}

/** @throws HubgateError `invalid-pattern` */
export function compileResponseRules(
  config: Pick<ReverseProxyConfig, 'handleResponse' | 'headerDown'>,
  expand: Expand,
  compileRoutes: (routes: readonly RouteConfig[]) => Handler,
): ResponseRules {
  const interceptors = config.handleResponse.map(({ status, header, replaceStatus, routes }) => ({
    matchesStatus: statusMatcher(status),
    matchesHeader: headerMatcher(header),
    answer: replaceStatus ?? compileRoutes(routes),
  }));
  return {
    headerDown: compileOperations(config.headerDown),
    expand,
    intercept: (status, headers) =>
      interceptors.find((one) => one.matchesStatus(status) && one.matchesHeader(headers))?.answer ??
      null,
  };
}

function headerMatcher(
  header: ReverseProxyConfig['handleResponse'][number]['header'],
): (headers: HeaderList) => boolean {
  if (header === null) return () => true;
  const matches = compileWildcard(header.value, 'edges');
  return (headers) => headers.getAll(header.name).some(matches);
}

/** @throws ForwardError `upstream-broken`; RFC 9110 §15: statuses begin with 100 */
function refuseStatus(status: number): void {
  if (status < 100) throw unreadable(`status ${status}`);
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
  readonly #exchange: Exchange;
  readonly #choice: Pick<Choice, 'cookie'>;
  readonly #rules: ResponseRules;
  readonly #onStatus: (status: number) => void;
  readonly #recorder: ResponseRecorder | null;
  /** Where the client's bytes go, where what is written is recorded on its way. */
  #recorded: { readonly tee: Writable; readonly body: Writable } | null = null;

  constructor(
    exchange: Exchange,
    choice: Pick<Choice, 'cookie'>,
    rules: ResponseRules,
    onStatus: (status: number) => void,
    recorder: ResponseRecorder | null = null,
  ) {
    this.#recorder = recorder;
    this.#exchange = exchange;
    this.#choice = choice;
    this.#rules = rules;
    this.#onStatus = onStatus;
  }

  onInformation(status: number, headers: HeaderList, received: ReceivedProtocol): void {
    refuseStatus(status);
    // 100 is for the gateway: the client's own expectation is handled when its body is read.
    if (status !== 100) {
      this.#exchange.inform(status, clientResponseFields(headers, received));
    }
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
    this.#recorder?.head({ status, headers, received }, this.#exchange.upstream?.hostport ?? '');
    const answer = this.#rules.intercept(status, headers);
    if (answer === null) return this.#begin({ ...this.#head(status, headers, received), isWhole });
    if (typeof answer === 'number') {
      // RFC 9110 §8.6: such a length is that of a body that is not sent.
      if (status === 204 || status === 304) headers.delete('content-length');
      return this.#begin({ ...this.#head(answer, headers, received), isWhole });
    }
    this.#recorder?.refuse();
    this.interceptor = answer;
    this.#leaveForRoutes(status, headers);
    return null;
  }

  onEnd(body: Writable, trailers: HeaderList): void {
    dropForbiddenTrailers(trailers);
    if (this.#recorded?.tee !== body) {
      this.#exchange.end(body, trailers);
      return;
    }
    const { tee, body: passed } = this.#recorded;
    this.#recorder?.complete(trailers);
    tee.end((error?: Error | null) => {
      if (!(error instanceof Error)) this.#exchange.end(passed, trailers);
    });
  }

  switched(headers: HeaderList): ResponseHead {
    this.#onStatus(101);
    return this.#head(101, headers, '1.1');
  }

  #begin(head: ResponseHead): Writable {
    const body = this.#exchange.begin(head);
    if (this.#recorder === null) return body;
    const tee = this.#recorder.tee(body);
    if (tee !== body) this.#recorded = { tee, body };
    return tee;
  }

  #head(status: number, headers: HeaderList, received: ReceivedProtocol): ResponseHead {
    const passed = clientResponseFields(headers, received);
    this.#rules.headerDown(passed, (text) => this.#rules.expand(text, this.#exchange, passed));
    if (this.#choice.cookie !== undefined) passed.append('Set-Cookie', this.#choice.cookie);
    return { status, headers: passed, source: 'upstream' };
  }

  #leaveForRoutes(status: number, headers: HeaderList): void {
    const { variables } = this.#exchange;
    variables.set('rp.status_code', String(status));
    for (const [name] of headers) {
      const value = headers.combined(name) ?? '';
      variables.set(`rp.header.${name.toLowerCase()}`, value);
      variables.set(`http.response.header.${name.toLowerCase()}`, value);
    }
  }
}

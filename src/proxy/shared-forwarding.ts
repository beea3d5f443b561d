import { ignore } from '../kernel/error.ts';
import type { ArrivingBody } from '../coalescing/arriving-body.ts';
import type { Flight, RequestCoalescer } from '../coalescing/request-coalescer.ts';
import type { Exchange, UpstreamVisit } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { type Clock, pause } from '../kernel/clock.ts';
import type { ReceivedProtocol } from './forwarding.ts';
import { fits, isShareable, requestKey, type UpstreamQuestion } from './shareable.ts';

/** Largest shared response, in bytes. */
export const MAX_SHARED_BYTES = 1024 * 1024;
/** How long a request waits for the response to another, in milliseconds. */
export const MAX_SHARING_WAIT_MS = 5_000;

/** Which concurrent requests of a site are equal. */
export interface RequestSharing {
  /** null for a request that is neither shared nor delayed. */
  groupOf(exchange: Exchange): RequestGroup | null;
  /** Waits for pages that the visitor is about to get, before a request of a group; null if there are none. */
  ownPages(exchange: Exchange): Promise<void> | null;
  /** Waits before a request of a group that is sent for itself. */
  spread(exchange: Exchange): Promise<void>;
  /**
   * The fields of a response, in its head or its trailers, for other clients; null if they make it the
   * response of one client.
   */
  forOthers(fields: HeaderList): HeaderList | null;
  /** Called when a request got the response to another. */
  shared(): void;
}

interface RequestGroup {
  /** Requests of different groups share no response. */
  readonly name: string;
  /** How long other requests may join before this one is sent, in milliseconds; none can join afterwards. */
  readonly gatherMs: number;
  /** If it is 0: how long the response is shared, from the time of its request. */
  readonly keepMs: number;
}

/** The response of an upstream as it has sent it. Each request applies its own rules to it. */
export interface SharedResponse {
  readonly status: number;
  readonly headers: HeaderList;
  readonly received: ReceivedProtocol;
  readonly upstream: UpstreamVisit;
  /** Of the load balancer, for the client that asked first. */
  readonly cookie: string | undefined;
}

/** Takes the head of an upstream's response to share it; false if it goes to the client that asked. */
export type ShareResponse = (response: SharedResponse) => boolean;

/** A shared response in progress, and the request that the upstream has seen. */
export interface UpstreamAnswer {
  readonly first: SharedResponse;
  /** Its fields for other clients. */
  readonly forOthers: HeaderList;
  readonly request: HeaderList;
}

/** How one proxy sends a request, and responds to it. */
export interface Forwarding {
  readonly coalescer: RequestCoalescer<UpstreamAnswer>;
  readonly clock: Clock;
  /** The request that an upstream would get; null if none is known. */
  readonly questionOf: (exchange: Exchange) => UpstreamQuestion | null;
  readonly ask: (exchange: Exchange, share: ShareResponse | null) => Promise<void>;
  readonly replay: (
    response: SharedResponse,
    body: ArrivingBody,
    trailers: () => HeaderList | null,
  ) => Promise<void>;
}

/**
 * Forwards a request, or responds with the response to another one. This happens next to the upstream, after
 * every rule of the site. The key is everything that the upstream sees, and the rules for responses are
 * applied for each request.
 */
export async function shareForwarding(
  exchange: Exchange,
  sharing: RequestSharing,
  forwarding: Forwarding,
): Promise<void> {
  const group = sharing.groupOf(exchange);
  if (group === null) return forwarding.ask(exchange, null);
  await sharing.ownPages(exchange);
  const isShared = group.gatherMs > 0 || group.keepMs > 0;
  const question = isShared ? forwarding.questionOf(exchange) : null;
  const own = question === null ? null : requestKey(exchange, question);
  if (question !== null && own !== null) {
    const { coalescer } = forwarding;
    const key = `${own} ${group.name}`;
    const fields = question.headers;
    if (!coalescer.isUnshared(key)) {
      const flight = coalescer.find(key);
      if (flight !== undefined) {
        if (await follow(exchange, fields, flight, sharing, forwarding)) return;
      } else if (!coalescer.isFull) return lead(exchange, fields, key, group, sharing, forwarding);
    }
  }
  await sharing.spread(exchange);
  await forwarding.ask(exchange, null);
}

/** Answers with the response to another request. Returns false if it is not for this one. */
async function follow(
  exchange: Exchange,
  fields: HeaderList,
  flight: Flight<UpstreamAnswer>,
  sharing: RequestSharing,
  { coalescer, replay }: Forwarding,
): Promise<boolean> {
  const outcome = await coalescer.join(flight, exchange);
  switch (outcome.kind) {
    case 'left':
      return true;
    case 'failed':
      if (flight.failsFor(exchange, outcome.error)) {
        flight.handOn(exchange);
        throw outcome.error;
      }
      return false;
    case 'passed':
    case 'unanswered':
    case 'aborted':
      return false;
    case 'answer': {
      const { answer, body } = outcome;
      if (body?.isWhole !== true || !fits(answer.forOthers, answer.request, fields)) return false;
      sharing.shared();
      const { hostport } = answer.first.upstream;
      const response = {
        ...answer.first,
        headers: answer.forOthers.clone(),
        upstream: { hostport, latencyMs: 0 },
        cookie: undefined,
      };
      const trailers = (): HeaderList | null => sharing.forOthers(body.trailers);
      await replay(response, body, trailers);
      return true;
    }
  }
}

/** Asks the upstream. Others can join meanwhile. */
async function lead(
  exchange: Exchange,
  request: HeaderList,
  key: string,
  { gatherMs, keepMs }: RequestGroup,
  sharing: RequestSharing,
  { coalescer, clock, ask, replay }: Forwarding,
): Promise<void> {
  const shared: { answer: UpstreamAnswer | null } = { answer: null };
  const share: ShareResponse = (first) => {
    const isTooLarge = Number(first.headers.get('content-length') ?? 0) > MAX_SHARED_BYTES;
    const isForOthers = !isTooLarge && isShareable(first, request, clock.now());
    const forOthers = isForOthers ? sharing.forOthers(first.headers) : null;
    shared.answer = forOthers === null ? null : { first, forOthers, request };
    return forOthers !== null;
  };
  const flight = coalescer.start(key, {
    moment: 0,
    headers: exchange.headers.clone(),
    isBackground: false,
    decide: (head) => {
      const { answer } = shared;
      if (answer === null) {
        coalescer.markUnshared(key, keepMs);
        return { kind: 'pass', head };
      }
      const complete = (body: ArrivingBody): void => {
        if (sharing.forOthers(body.trailers) === null) flight.close();
      };
      return { kind: 'share', answer, complete };
    },
  });
  const { outcome, finished } = flight.fetch(exchange, async (fetch = exchange) => {
    if (gatherMs > 0) {
      await pause(clock, gatherMs, fetch);
      flight.close();
    } else clock.after(keepMs, () => flight.close());
    await ask(fetch, share);
  });
  const come = await outcome;
  if (come.kind === 'answer' && come.body !== null) {
    const { body } = come;
    // Its client, if it has not left, gets the answer like all others.
    finished.catch(ignore);
    await replay(come.answer.first, body, () => body.trailers);
    return;
  }
  if (come.kind === 'left') return;
  if (come.kind === 'aborted') exchange.abort();
  else if (come.kind !== 'passed') flight.handOn(exchange);
  await finished;
}

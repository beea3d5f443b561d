import type { DiscoveryConfig } from '../config/config.ts';
import { isPrivate, makePrivate } from '../http/cache-control.ts';
import { listMembers, selfLink } from '../http/field-values.ts';
import type { Exchange, RequestHook, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { addVary } from '../http/representation.ts';
import type { Clock } from '../kernel/clock.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { Credentials } from './credentials.ts';
import { outcomeStatus } from '../http/request-variables.ts';
import { DESTINATION, isDestinationOfPages } from '../http/request-path.ts';
import { announcesHub, hubFields, type HubFields } from './link.ts';
import type { TokenSource } from './token-source.ts';

export interface DiscoveryOptions {
  readonly config: DiscoveryConfig;
  readonly hub: AnnouncedHub;
  readonly matches: (exchange: Exchange) => boolean;
  /** Whether the path of the request is one for logging out. */
  readonly logsOut: (exchange: Exchange) => boolean;
  readonly isHubRequest: (exchange: Exchange) => boolean;
  readonly tokens: TokenSource | null;
  readonly clock: Clock;
}

/** The facts that are determined when a request arrives. */
interface Arrival {
  readonly lastEventId: string | null;
  /** Whether the response can be read by a page that opens a stream afterwards. */
  readonly isRead: boolean;
  readonly logsOut: boolean;
}

/**
 * Makes the pages of an app discoverable. The cursor is read before the request goes to the app. Everything
 * that is published while the page is rendered comes after it, so that no page can miss an update between its
 * rendering and its subscription.
 */
export function createDiscovery(options: DiscoveryOptions): RequestHook {
  const { config, hub, matches, logsOut, isHubRequest, tokens } = options;
  const credentials = new Credentials(options);
  const readFields = tokens?.responseFields ?? [];
  const { contentType, type } = config;
  const fieldsFor = hubFields({ target: hub.target, relation: hub.relation, contentType, type });
  return (exchange) => {
    if (isHubRequest(exchange) || !matches(exchange)) return;
    const arrival: Arrival = {
      lastEventId: config.lastEventId ? hub.lastEventId() : null,
      isRead: isDestinationOfPages(exchange.headers),
      logsOut: logsOut(exchange),
    };
    if (tokens !== null && arrival.isRead) askForWhole(exchange);
    // From the head, the trailers and informational responses.
    if (readFields.length > 0) exchange.withhold(readFields);
    exchange.onHead((head) => {
      // Nothing reads the head of a tunnel, which is a 200 over HTTP/2.
      if (head.status < 200 || head.opensTunnel === true) return undefined;
      if (head.source !== 'upstream') {
        // A refusal by the gateway itself (`forward_auth`) is not a page, but may end a session.
        if (endsSession(exchange, head, config)) credentials.end(exchange, head.headers);
        return undefined;
      }
      if (head.status === 304) varyAsPage(head.headers, options);
      else {
        const type = typeOf(head.headers);
        if (type !== EVENT_STREAM) {
          announce(exchange, head, type, options, fieldsFor(arrival.lastEventId));
        }
      }
      return handOutToken(exchange, head, options, arrival, credentials);
    });
  };
}

/**
 * Makes the app respond in full. A 304 says nothing about the response that it stands for, so it must not
 * contain a token (the request may come from a shared cache), and the token would never be renewed.
 */
function askForWhole({ method, headers }: Exchange): void {
  if (method !== 'GET' && method !== 'HEAD') return;
  headers.delete('if-none-match');
  headers.delete('if-modified-since');
}

const EVENT_STREAM = 'text/event-stream';
const ORIGIN = ['Origin'];
/** Types whose scripts cannot read the fields of their own response. */
const DOCUMENTS = new Set(['text/html', 'application/xhtml+xml']);

function announce(
  exchange: Exchange,
  { headers }: ResponseHead,
  type: string,
  { config, hub }: DiscoveryOptions,
  { link, timing }: HubFields,
): void {
  if (config.link && !announcesHub(headers, hub.relation)) {
    headers.append('Link', link);
    if (DOCUMENTS.has(type)) headers.append('Server-Timing', timing);
  }
  const self = config.self ? selfLink(exchange.originalTarget) : null;
  if (self !== null) headers.append('Link', self);
  if (hub.allowsOrigin === null || !headers.has('link')) return;
  const origin = exchange.headers.get('origin');
  if (origin !== undefined && hub.allowsOrigin(origin)) expose(headers, 'Link');
  addVary(headers, ORIGIN);
}

/** RFC 9110 §15.4.5: a 304 varies like the page that it stands for. */
function varyAsPage(headers: HeaderList, { config, hub }: DiscoveryOptions): void {
  const isLinked = config.link || config.self || headers.has('link');
  if (isLinked && hub.allowsOrigin !== null) addVary(headers, ORIGIN);
}

/** The app's own header takes precedence over the token source. */
function handOutToken(
  exchange: Exchange,
  head: ResponseHead,
  { config, tokens }: DiscoveryOptions,
  arrival: Arrival,
  credentials: Credentials,
): Promise<void> | undefined {
  const { status, headers } = head;
  const sent = headers.get(config.cookie.fromHeader);
  if (sent !== undefined) {
    credentials.fromApp(exchange, head, sent);
    return undefined;
  }
  const hasLoggedOut = arrival.logsOut && outcomeStatus(exchange, head) < 400;
  if (hasLoggedOut || endsSession(exchange, head, config)) {
    credentials.end(exchange, headers);
    return undefined;
  }
  if (tokens === null || status >= 400) return undefined;
  // No page reads the head of a stream.
  if (status !== 304 && typeOf(headers) === EVENT_STREAM) return undefined;
  const { dependence } = tokens;
  if (!arrival.isRead) {
    // Otherwise, a request with another destination would get a token with it.
    addVary(headers, isPrivate(headers) ? [] : [...dependence.onClientFields, DESTINATION]);
    return undefined;
  }
  if (status === 304) return undefined;
  return tokens.tokenFor(exchange, headers).then((outcome) => {
    if (outcome.kind === 'token') return credentials.handOut(exchange, headers, outcome.token);
    // Every request identifies its user, and this one has none: the session has ended, for whatever reason.
    const { onOwnFields, onResponse } = dependence;
    const namesNobody = outcome.kind === 'guest' && onOwnFields && !onResponse;
    if (namesNobody && credentials.isKnown(exchange)) credentials.end(exchange, headers);
    else if (onOwnFields) makePrivate(headers);
    else if (!isPrivate(headers)) addVary(headers, [...dependence.onClientFields, DESTINATION]);
  });
}

function endsSession(
  exchange: Exchange,
  head: ResponseHead,
  { expire: { statuses } }: DiscoveryConfig,
): boolean {
  return statuses.length > 0 && statuses.includes(outcomeStatus(exchange, head));
}

/** The media type of a response without its parameters; empty if it has none. */
function typeOf(headers: HeaderList): string {
  const given = headers.get('content-type') ?? '';
  const end = given.indexOf(';');
  return (end === -1 ? given : given.slice(0, end)).trim().toLowerCase();
}

/** Lets scripts of other origins read a field (WHATWG Fetch §3.2.3). */
function expose(headers: HeaderList, name: string): void {
  const field = 'access-control-expose-headers';
  const present = listMembers(headers.combined(field)).map((one) => one.toLowerCase());
  if (!present.includes(name.toLowerCase())) headers.append('Access-Control-Expose-Headers', name);
}

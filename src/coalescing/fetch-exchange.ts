import type { Writable } from 'node:stream';
import type {
  BodyWrapper,
  Dependence,
  Exchange,
  ResponseHead,
  UpstreamVisit,
} from '../http/exchange.ts';
import { discarding, GatewayRequest, isBodyless, wrapped } from '../http/exchange-response.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Identity } from '../http/identity.ts';
import { copiedVariables } from '../http/request-variables.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { withPreset } from '../http/header-operations.ts';
import type { Logger } from '../kernel/log.ts';

/** The destination of the response. */
export interface FetchSink {
  /**
   * Returns the stream for the body, or the head with which the response goes to the client of the request.
   */
  take(head: ResponseHead): { readonly body: Writable } | { readonly pass: ResponseHead };
  /** The body is complete; its end follows. */
  trailers(trailers: HeaderList): void;
  /** The response was aborted, possibly before it began. */
  broken(): void;
}

/**
 * The request to the app on behalf of one or more clients: it has the client of the first request, but its
 * own body, response and end. Changes that later handlers make to the head are applied here, so
 * the result is what they would have sent.
 */
export class FetchExchange extends GatewayRequest implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget: string | null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  /**
   * The preset fields of the request itself, and those that later handlers add. Only the latter
   * become part of the stored response.
   */
  readonly preset: HeaderList;
  readonly identity: Identity;
  readonly variables: Map<string, string>;
  readonly standsFor: Exchange;
  /** Request fields that decided something on the way, in lower case. */
  readonly decidingFields = new Set<string>();
  /** Something else on which the response depends, so that it cannot be shared; null if there is nothing. */
  unsharedBy: Extract<Dependence, string> | null = null;
  readonly #parent: Exchange;
  readonly #sink: FetchSink;
  readonly #isAlone: boolean;
  readonly #inherited: ReadonlySet<string>;
  /** The body of the response that goes to the client of the request; null if the sink has taken it. */
  #passed: Writable | null = null;
  #upstream: UpstreamVisit | null = null;

  /** @param isBackground no client waits for the response */
  constructor(parent: Exchange, headers: HeaderList, sink: FetchSink, isBackground: boolean) {
    super();
    this.#parent = parent;
    this.standsFor = parent.standsFor ?? parent;
    this.#sink = sink;
    this.#isAlone = isBackground;
    this.scheme = parent.scheme;
    this.httpVersion = parent.httpVersion;
    this.originalHost = parent.originalHost;
    this.host = parent.host;
    this.preset = parent.preset.clone();
    this.#inherited = new Set(fieldsOf(this.preset));
    this.originalTarget = parent.originalTarget;
    this.rawTarget = parent.rawTarget;
    this.target = parent.target;
    this.headers = headers;
    this.remoteAddress = parent.remoteAddress;
    this.remotePort = parent.remotePort;
    this.clientAddress = parent.clientAddress;
    this.identity = parent.identity;
    this.variables = isBackground ? copiedVariables(parent) : parent.variables;
  }

  readonly dependsOn = (on: Dependence): void => {
    if (typeof on === 'string') this.unsharedBy = on;
    else this.decidingFields.add(on.field.toLowerCase());
    this.#parent.dependsOn?.(on);
  };

  get id(): string {
    return this.#parent.id;
  }

  get log(): Logger {
    return this.#parent.log;
  }

  /** Whether the handlers would have done the same for another client of the same response. */
  isSameFor({ headers }: Exchange): boolean {
    if (this.unsharedBy !== null) return false;
    const own = this.#parent.headers;
    for (const name of this.decidingFields) {
      if (own.combined(name) !== headers.combined(name)) return false;
    }
    return true;
  }

  /**
   * Hands on what handlers have set for a response that never began: another response is sent instead, such as that
   * of an error.
   *
   * @param exchange its own client, or another one that gets the same error: without cookies, and without transforms,
   * which belong to one request
   */
  handOn(exchange: Exchange): void {
    if (this.begun) return;
    if (exchange === this.#parent) {
      exchange.preset.deleteWhere(() => true);
      for (const [name, value] of this.preset) exchange.preset.append(name, value);
      this.moveTransforms(exchange);
      return;
    }
    for (const [name, value] of this.preset) {
      const isKnown = this.#inherited.has(fieldOf(name, value));
      if (!isKnown && name.toLowerCase() !== 'set-cookie') exchange.preset.append(name, value);
    }
  }

  get responseBytes(): number {
    return this.#parent.responseBytes;
  }

  get tlsVersion(): string | null {
    return this.#parent.tlsVersion;
  }

  get upstream(): UpstreamVisit | null {
    return this.#upstream;
  }

  set upstream(visit: UpstreamVisit | null) {
    this.#upstream = visit;
    if (!this.#isAlone) this.#parent.upstream = visit;
  }

  get trace(): TraceContext | null {
    return this.#parent.trace;
  }

  takeOver(head: ResponseHead): void {
    this.#parent.takeOver(head);
  }

  override withhold(names: readonly string[]): void {
    super.withhold(names);
    if (!this.#isAlone) this.#parent.withhold(names);
  }

  inform(status: number, headers: HeaderList): void {
    if (!this.#isAlone && !this.begun) this.#parent.inform(status, headers);
  }

  protected addPreset(head: ResponseHead): void {
    this.preset.deleteWhere((name, value) => this.#inherited.has(fieldOf(name, value)));
    withPreset(head, this.preset);
  }

  protected send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    const taken = this.#sink.take(head);
    if ('pass' in taken) {
      this.#passed = this.#parent.begin(taken.pass);
      return wrapped(this.#passed, wrappers);
    }
    const { body } = taken;
    return isBodyless(this.originalMethod, head) ? discarding(body) : wrapped(body, wrappers);
  }

  protected finish(body: Writable, trailers: HeaderList): void {
    if (this.#passed !== null) this.#parent.end(body, trailers);
    else {
      this.#sink.trailers(trailers);
      body.end();
    }
  }

  protected breakOff(): void {
    if (this.#passed !== null) this.#parent.abort(this.#passed);
    else this.#sink.broken();
  }
}

function fieldsOf(headers: HeaderList): readonly string[] {
  return [...headers].map(([name, value]) => fieldOf(name, value));
}

function fieldOf(name: string, value: string): string {
  return `${name.toLowerCase()}: ${value}`;
}

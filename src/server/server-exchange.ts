import { randomUUID } from 'node:crypto';
import type { Readable, Writable } from 'node:stream';
import { HttpError } from '../http/errors.ts';
import type {
  BodyLease,
  BodyWrapper,
  Exchange,
  HeadTransform,
  LeasedBody,
  ResponseHead,
  ResponseStream,
  UpgradeRequest,
  UpstreamVisit,
  WaitLimit,
} from '../http/exchange.ts';
import { expectsContinue } from '../http/hop-by-hop.ts';
import { plainAddress } from '../http/forwarded.ts';
import type { HeaderList } from '../http/header-list.ts';
import { Identity } from '../http/identity.ts';
import { dropFieldsOfContent } from '../http/representation.ts';
import { countWrites, WritableStream } from '../http/writable-stream.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { DeferredBody, discarding, HeadChanges, isBodyless } from '../http/head-changes.ts';
import { ClientBody } from './client-body.ts';
import { DisconnectSignal } from './disconnect-signal.ts';
import type { ExchangeConnection, ExchangeSettings } from './exchange-settings.ts';
import type { ProtocolAdapter } from './protocol-adapter.ts';

/** The {@link Exchange} of a request that a server has read, over whichever protocol it came. */
export class ServerExchange implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly method: string;
  readonly host: string;
  readonly originalTarget: string;
  readonly rawTarget: string | null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  readonly hasBody: boolean;
  readonly identity: Identity = new Identity();
  readonly variables: Map<string, string> = new Map();
  readonly upgrade: UpgradeRequest | null;
  readonly tlsVersion: string | null;
  upstream: UpstreamVisit | null = null;
  trace: TraceContext | null = null;
  responseBytes = 0;

  readonly #adapter: ProtocolAdapter;
  readonly #settings: ExchangeSettings;
  readonly #changes = new HeadChanges();
  #id: string | undefined;
  #log: Logger | undefined;
  /** What is read instead of the wire's, once somebody has asked for it or put another there. */
  #body: Readable | null = null;
  #held: DeferredBody | null = null;
  #disconnect: DisconnectSignal | undefined;
  /** The client holds its body back until it is told to go on. */
  #awaitsContinue: boolean;
  #status = 0;
  #isStream = false;
  /** The rest of the body is not waited for. */
  #isSilent = false;

  constructor(
    adapter: ProtocolAdapter,
    settings: ExchangeSettings,
    { secure, tlsVersion, peer, upgrade }: ExchangeConnection,
  ) {
    this.#adapter = adapter;
    this.#settings = settings;
    this.upgrade = upgrade;
    this.tlsVersion = tlsVersion;
    this.scheme = secure ? 'https' : 'http';
    this.httpVersion = adapter.httpVersion;
    this.method = adapter.method;
    this.host = adapter.host;
    this.originalTarget = adapter.target;
    this.rawTarget = settings.keeps.forwardRawPath ? adapter.spelledTarget : null;
    this.target = adapter.target;
    this.headers = this.#kept(adapter.headers);
    this.hasBody = adapter.hasBody;
    this.remoteAddress = plainAddress(peer.address);
    this.remotePort = peer.port;
    this.clientAddress =
      settings.clientAddress?.(adapter.headers, this.remoteAddress) ?? this.remoteAddress;
    this.#awaitsContinue = this.hasBody && expectsContinue(this);
  }

  get id(): string {
    this.#id ??= randomUUID();
    return this.#id;
  }

  get log(): Logger {
    this.#log ??= this.#settings.log.child({ request: this.id });
    return this.#log;
  }

  get body(): Readable {
    if (this.#body !== null) return this.#body;
    const { body } = this.#adapter;
    const silence = this.#silence();
    // Of one that has ended, or will not come, nothing is waited for.
    const isPlain = silence === null || body.readableEnded || this.#isSilent;
    this.#body = isPlain ? body : new ClientBody(body, silence, null);
    return this.#body;
  }

  set body(body: Readable) {
    this.#body = body;
  }

  lendBody(loan: BodyLease): LeasedBody | null {
    if (!this.hasBody) return null;
    // What has been asked for before has the limit of silence itself.
    return this.#body === null
      ? new ClientBody(this.#adapter.body, this.#silence(), loan)
      : new ClientBody(this.#body, null, loan);
  }

  trailers(): HeaderList {
    return this.#kept(this.#adapter.trailers());
  }

  get abandoned(): boolean {
    return this.#adapter.abandoned;
  }

  /** RFC 9110 §15.5.9: whoever reads the body answers 408, if there is still somebody to answer. */
  forgoBody(): void {
    if (this.begun) this.#adapter.discardRequest();
    else this.#isSilent = true;
  }

  onAbandoned(listener: () => void): () => void {
    return this.#awaitDeparture().tell(listener);
  }

  get signal(): AbortSignal {
    return this.#awaitDeparture().signal;
  }

  takeOver(head: ResponseHead): void {
    if (this.upgrade?.kind !== 'http1') {
      throw new HubgateError('no-connection', 'Only an upgrade of HTTP/1.1 has a connection');
    }
    this.#refuseSecondHead();
    void this.#changes.apply(head, []);
    this.#changes.drop(head.headers);
    this.#status = head.status;
    this.upgrade.release();
  }

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
  }

  onHead(transform: HeadTransform): void {
    this.#changes.add(transform);
  }

  withhold(name: string): void {
    this.#changes.withhold(name);
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#changes.addTrailerReader(read);
  }

  inform(status: number, headers: HeaderList): void {
    if (this.begun || status === 101) return;
    this.#changes.drop(headers);
    // RFC 9110 §8.6: no informational response has a length.
    headers.delete('content-length');
    if (status === 100) this.#awaitsContinue = false;
    this.#adapter.inform(status, headers);
  }

  begin(head: ResponseHead): Writable {
    this.#refuseSecondHead();
    // RFC 9113 §8.5: any 2xx tells the client that its tunnel is there, and what follows is of it.
    if (this.upgrade?.kind === 'http2' && head.opensTunnel !== true && isSuccess(head.status)) {
      head.status = 501;
    }
    this.#adapter.prepare(head, this.#isStream);
    const wrappers: BodyWrapper[] = [];
    const waiting = this.#changes.apply(head, wrappers);
    if (waiting === undefined) return this.#send(head, wrappers);
    this.#status = head.status;
    this.#held = new DeferredBody({
      begin: () => waiting.then(() => this.#send(head, wrappers)),
      end: (body, trailers) => this.#end(body, trailers),
      fail: (error) => {
        this.log.error('A head that had waited could not be sent', { error: messageOf(error) });
        this.abort();
      },
    });
    return this.#held.body;
  }

  stream(head: ResponseHead): ResponseStream {
    this.#isStream = true;
    const body = this.begin(head);
    return this.#adapter.stream(body, this.#disconnect) ?? new WritableStream(body, this);
  }

  end(body: Writable, trailers: HeaderList): void {
    if (this.#held?.body === body) this.#held.end(trailers);
    else this.#end(body, trailers);
  }

  abort(): void {
    this.#disconnect?.happen();
    this.#adapter.breakOff();
  }

  /**
   * Without names that have `_`, by default: to programs that make variables of fields (RFC 3875
   * §4.1.18) `X_User` is `X-User`, which the gateway may set or take away.
   */
  #kept(fields: HeaderList): HeaderList {
    if (!this.#settings.keeps.underscoresInHeaders) fields.deleteWhere((key) => key.includes('_'));
    return fields;
  }

  #silence(): WaitLimit | null {
    const { silence } = this.#settings;
    if (silence === null || !this.hasBody || this.upgrade !== null) return null;
    const { limitMs, clock } = silence;
    const over = (): Error => {
      this.forgoBody();
      return new HttpError(408, `the client was silent for ${limitMs} ms`);
    };
    return { limitMs, clock, over };
  }

  #awaitDeparture(): DisconnectSignal {
    if (this.#disconnect !== undefined) return this.#disconnect;
    const disconnect = new DisconnectSignal();
    this.#disconnect = disconnect;
    if (this.abandoned) disconnect.happen();
    this.#adapter.tell(disconnect);
    return disconnect;
  }

  #refuseSecondHead(): void {
    if (!this.begun) return;
    throw new HubgateError('response-begun', 'The head of this response has already been sent');
  }

  #send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    this.#changes.drop(head.headers);
    if (head.isUnchanged === true) dropFieldsOfContent(head.headers);
    // What wraps a body may have something to say of an empty one.
    const isWhole = head.isWhole === true && wrappers.length === 0 && this.httpVersion === '2.0';
    const bodyless = isBodyless(this.method, head) || isWhole;
    const body = this.#adapter.send(head, bodyless, !this.#awaitsContinue && !this.#isSilent);
    this.#status = head.status;
    if (bodyless) return discarding(body);
    this.#measure(head.headers, body);
    return wrappers.reduce<Writable>((inner, wrap) => wrap(inner), body);
  }

  /** What a stream comes to is counted by those who write it. */
  #measure(headers: HeaderList, body: Writable): void {
    if (this.#isStream) return;
    const length = headers.get('content-length');
    if (length !== undefined) this.responseBytes = Number(length) || 0;
    else {
      countWrites(body, (bytes) => {
        this.responseBytes += bytes;
      });
    }
  }

  #end(body: Writable, trailers: HeaderList): void {
    this.#changes.applyTrailers(trailers);
    if (!trailers.isEmpty) this.#adapter.sendTrailers(trailers);
    body.end();
  }
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

import type { Readable, Writable } from 'node:stream';
import type { ResponseHead, ResponseStream } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { DisconnectSignal } from './disconnect-signal.ts';

/** One request as a protocol brings it and the way of its response: what differs between protocols. */
export interface ProtocolAdapter {
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly method: string;
  /** The authority that counts; empty when the request had none. */
  readonly host: string;
  /** Path and query in their canonical form. */
  readonly target: string;
  /** Path and query as the client spelled them. */
  readonly spelledTarget: string;
  readonly headers: HeaderList;
  readonly hasBody: boolean;
  /** Where the body is read from. */
  readonly body: Readable;
  /** Trailer fields of the request; complete once its body has ended. */
  trailers(): HeaderList;
  /** Whether the client has left before the response was complete. */
  readonly abandoned: boolean;
  /** Lets somebody know when that happens. */
  tell(disconnect: DisconnectSignal): void;
  /** Sends a 1xx response, where the protocol has them. */
  inform(status: number, headers: HeaderList): void;
  /** Told which head will be sent, as its handler has made it. */
  prepare(head: ResponseHead, isStream: boolean): void;
  /**
   * Sends the head and returns where the body goes. Without `isRead` the rest of the request is not
   * waited for.
   */
  send(head: ResponseHead, isBodyless: boolean, isRead: boolean): Writable;
  /** What costs least to write to after the head of a stream; null where that is `body` itself. */
  stream(body: Writable, disconnect: DisconnectSignal | undefined): ResponseStream | null;
  /** Before the body ends; dropped where the protocol cannot carry them. */
  sendTrailers(trailers: HeaderList): void;
  /** Breaks the response off, so that the client cannot take it for complete. */
  breakOff(): void;
  /** The response has begun, and the rest of the request will not come. */
  discardRequest(): void;
}

import type { Readable, Writable } from 'node:stream';
import type { ResponseHead, ResponseStream } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';

/** One request and the means to send its response: everything that differs between the protocols. */
export interface ProtocolAdapter {
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly method: string;
  /** The effective authority; empty if the request had none. */
  readonly host: string;
  /** Path and query in their canonical form. */
  readonly target: string;
  /** Path and query as the client spelled them. */
  readonly spelledTarget: string;
  readonly headers: HeaderList;
  readonly hasBody: boolean;
  /** The source of the body. */
  readonly body: Readable;
  /** Trailer fields of the request; complete once its body has ended. */
  trailers(): HeaderList;
  /** Whether the client has left before the response was complete. */
  readonly abandoned: boolean;
  /** Sets the signal that is triggered when that happens. */
  reportDisconnect(disconnect: DisconnectSignal): void;
  /** Sends a 1xx response, if the protocol has them. */
  inform(status: number, headers: HeaderList): void;
  /** Called with the head of the handler before the head is sent. */
  prepare(head: ResponseHead, isStream: boolean): void;
  /**
   * Sends the head and returns the stream for the body. Without `isRead`, the rest of the request is not
   * awaited.
   */
  send(head: ResponseHead, isBodyless: boolean, isRead: boolean): Writable;
  /** The cheapest way to write a stream after its head; null if that is `body` itself. */
  stream(body: Writable, disconnect: DisconnectSignal | undefined): ResponseStream | null;
  /** Called before the body ends. The fields are dropped if the protocol cannot carry them. */
  sendTrailers(trailers: HeaderList): void;
  /** Aborts the response, so that the client does not regard it as complete. */
  breakOff(): void;
  /** The response has begun, and the rest of the request will not arrive. */
  discardRequest(): void;
}

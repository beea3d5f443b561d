import { Readable } from 'node:stream';
import { HubgateError } from '../kernel/error.ts';

/** Bytes of a request body that wait for the upstream to take them. */
const MAX_BUFFERED_BYTES = 64 * 1024;

export interface RequestBodyOptions {
  /** Longest time in milliseconds that the upstream may refuse to take bytes; 0 means no limit. */
  readonly writeTimeoutMs: number;
  /** Called when the upstream first asks for the body. */
  readonly onWanted: () => void;
}

/**
 * The body of a request on its way to one upstream. It stands between the client's stream and the
 * HTTP client, which destroys the bodies it is given and would take the client's connection along.
 */
export class RequestBody extends Readable {
  /** True once the upstream has been given bytes, so that the request cannot be repeated. */
  consumed = false;
  readonly #source: Readable;
  readonly #options: RequestBodyOptions;
  #attached = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(source: Readable, options: RequestBodyOptions) {
    super({ highWaterMark: MAX_BUFFERED_BYTES });
    this.#source = source;
    this.#options = options;
  }

  override _read(): void {
    clearTimeout(this.#timer);
    if (!this.#attached) this.#attach();
    this.#source.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#timer);
    this.#source.off('data', this.#onData);
    this.#source.off('end', this.#onEnd);
    this.#source.off('close', this.#onClose);
    this.#source.pause();
    done(error);
  }

  #attach(): void {
    this.#attached = true;
    // Never removed: what a leaving client makes the source emit must not end the process.
    this.#source.on('error', this.#onError);
    if (this.#source.destroyed) {
      this.#onClose();
      return;
    }
    this.#source.on('data', this.#onData);
    this.#source.on('end', this.#onEnd);
    this.#source.on('close', this.#onClose);
    this.#options.onWanted();
  }

  readonly #onData = (chunk: Buffer): void => {
    this.consumed = true;
    if (this.push(chunk)) return;
    this.#source.pause();
    if (this.#options.writeTimeoutMs === 0) return;
    this.#timer = setTimeout(() => {
      this.destroy(new HubgateError('upstream-write-timeout', 'The upstream takes no more bytes'));
    }, this.#options.writeTimeoutMs);
    this.#timer.unref();
  };

  readonly #onEnd = (): void => {
    this.push(null);
  };

  readonly #onError = (error: Error): void => {
    this.destroy(error);
  };

  readonly #onClose = (): void => {
    if (this.#source.readableEnded) return;
    const left = new HubgateError('client-left', 'The client left in the middle of its request');
    this.destroy(this.#source.errored ?? left);
  };
}

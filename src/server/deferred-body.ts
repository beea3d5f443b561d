import { Writable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';

export interface DeferredBodyOptions {
  /** Sends the head, and resolves to where the body goes. */
  readonly begin: () => Promise<Writable>;
  readonly end: (body: Writable, trailers: HeaderList) => void;
  /** The head could not be sent. */
  readonly fail: (error: unknown) => void;
}

/** Where a body is written whose head still waits. */
export class DeferredBody {
  readonly body: Writable;
  #trailers = new HeaderList();

  constructor({ begin, end, fail }: DeferredBodyOptions) {
    let sent: Writable | undefined;
    this.body = new Writable({
      construct: (ready) => {
        begin().then(
          (body) => {
            sent = body;
            ready();
          },
          (error: unknown) => {
            fail(error);
            ready();
          },
        );
      },
      // What the client does not take any more is told by the exchange's signal.
      write: (chunk: Buffer, _encoding, done) => {
        if (sent === undefined) done();
        else sent.write(chunk, () => done());
      },
      final: (done) => {
        if (sent !== undefined) end(sent, this.#trailers);
        done();
      },
    });
  }

  end(trailers: HeaderList): void {
    this.#trailers = trailers;
    this.body.end();
  }
}

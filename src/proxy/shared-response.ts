import type { HeaderList } from '../http/header-list.ts';
import type { ReceivedProtocol } from './forwarding.ts';

/** Bytes of all responses that are being shared in this process, however slowly they are read. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Largest shared response, in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024;

/** The head of an upstream's response, as the upstream has sent it. */
export interface AnswerHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly received: ReceivedProtocol;
}

/**
 * The memory of the shared responses. When it is full, the oldest response is removed: readers that are so
 * far behind are disconnected.
 */
export class SharedResponseMemory {
  readonly #maxBytes: number;
  /** The oldest first. */
  readonly #held = new Set<SharedResponse>();
  #bytes = 0;

  constructor(maxBytes = MAX_HELD_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes that are stored now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there is space for more of a response. */
  grow(answer: SharedResponse, bytes: number): boolean {
    while (this.#bytes + bytes > this.#maxBytes) {
      const oldest = this.#oldestBut(answer);
      if (oldest === undefined) return false;
      oldest.cut();
      this.forget(oldest);
    }
    this.#held.add(answer);
    this.#bytes += bytes;
    return true;
  }

  forget(answer: SharedResponse): void {
    if (this.#held.delete(answer)) this.#bytes -= answer.bytes;
  }

  #oldestBut(answer: SharedResponse): SharedResponse | undefined {
    for (const one of this.#held) if (one !== answer) return one;
    return undefined;
  }
}

/** An upstream's response that is kept while clients read it, or may still request it. */
export class SharedResponse {
  readonly head: AnswerHead;
  /** The request, with its fields as the upstream has seen them. */
  readonly request: HeaderList;
  /** `host:port` of the upstream. */
  readonly hostport: string;
  readonly chunks: Buffer[] = [];
  trailers: HeaderList | null = null;
  bytes = 0;
  readonly #memory: SharedResponseMemory;
  readonly #holds = new Set<SharedResponseHold>();
  #isCut = false;

  constructor(
    memory: SharedResponseMemory,
    head: AnswerHead,
    request: HeaderList,
    hostport: string,
  ) {
    this.#memory = memory;
    this.head = head;
    this.request = request;
    this.hostport = hostport;
  }

  /** Whether it has been removed in favour of others. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Stores another piece; returns false if there is no space for it. */
  add(chunk: Buffer): boolean {
    const size = this.bytes + chunk.length;
    if (this.#isCut || size > MAX_ANSWER_BYTES) return false;
    if (!this.#memory.grow(this, chunk.length)) return false;
    this.bytes = size;
    this.chunks.push(chunk);
    return true;
  }

  /** Keeps the response in memory until the hold is released. */
  hold(): SharedResponseHold {
    const hold = new SharedResponseHold(() => {
      if (this.#holds.delete(hold) && this.#holds.size === 0) this.#memory.forget(this);
    });
    this.#holds.add(hold);
    return hold;
  }

  /** Releases the bytes, and disconnects everything that still reads them. */
  cut(): void {
    this.#isCut = true;
    const holds = [...this.#holds];
    this.#holds.clear();
    this.chunks.length = 0;
    for (const hold of holds) hold.cut();
  }
}

/** The claim of one reader on a response. */
export class SharedResponseHold {
  readonly release: () => void;
  #onCut: () => void = () => {};

  constructor(release: () => void) {
    this.release = release;
  }

  /** Sets the function that ends the reading if the response is removed. */
  onCut(end: () => void): void {
    this.#onCut = end;
  }

  cut(): void {
    this.#onCut();
  }
}

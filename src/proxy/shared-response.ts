import type { HeaderList } from '../http/header-list.ts';
import type { ReceivedProtocol } from './forwarding.ts';

/** Bytes of all answers of this process that are being shared, however slowly they are read. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Bytes of one of them. */
const MAX_ANSWER_BYTES = 1024 * 1024;

/** The head of an upstream's answer, as the upstream has sent it. */
export interface AnswerHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly received: ReceivedProtocol;
}

/**
 * The memory of the answers that are shared. When it is full the oldest answer gives way: readers
 * that have fallen so far behind are cut off.
 */
export class SharedResponseMemory {
  readonly #maxBytes: number;
  /** The oldest first. */
  readonly #held = new Set<SharedResponse>();
  #bytes = 0;

  constructor(maxBytes = MAX_HELD_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** What is held now, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there is room for more of an answer. */
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

/** An upstream's answer that is kept while somebody reads it, or may still ask for it. */
export class SharedResponse {
  readonly head: AnswerHead;
  /** The request that it answers, as the upstream has seen its fields. */
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

  /** Whether it has had to give way to others. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Keeps another piece; false where there is no room for it. */
  add(chunk: Buffer): boolean {
    const size = this.bytes + chunk.length;
    if (this.#isCut || size > MAX_ANSWER_BYTES) return false;
    if (!this.#memory.grow(this, chunk.length)) return false;
    this.bytes = size;
    this.chunks.push(chunk);
    return true;
  }

  /** Keeps the answer in memory until the hold is released. */
  hold(): SharedResponseHold {
    const hold = new SharedResponseHold(() => {
      if (this.#holds.delete(hold) && this.#holds.size === 0) this.#memory.forget(this);
    });
    this.#holds.add(hold);
    return hold;
  }

  /** Lets go of the bytes, and of all that still read them. */
  cut(): void {
    this.#isCut = true;
    const holds = [...this.#holds];
    this.#holds.clear();
    this.chunks.length = 0;
    for (const hold of holds) hold.cut();
  }
}

/** The claim of one reader on an answer. */
export class SharedResponseHold {
  readonly release: () => void;
  #onCut: () => void = () => {};

  constructor(release: () => void) {
    this.release = release;
  }

  /** Says what ends the reading where the answer has to give way. */
  onCut(end: () => void): void {
    this.#onCut = end;
  }

  cut(): void {
    this.#onCut();
  }
}

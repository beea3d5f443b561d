import { Budget, completed, unlimitedBudget } from '../kernel/scheduler.ts';
import type { Update } from './update.ts';
import { parseTopic, type Topic } from './topic.ts';

/** How a connection wants its bytes: as chunks (RFC 9112 §7.1), or as they are. */
export type Framing = 'chunked' | 'plain';

/** A comment: keeps proxies and clients from giving up on a silent stream (WHATWG HTML §9.2.6). */
export const HEARTBEAT: Buffer = Buffer.from(':\n');

/** When the clients of a hub that ends are to come back: some sooner, some later, in milliseconds. */
const COME_BACK_MS = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500] as const;
const comeBack = COME_BACK_MS.map((ms) => Buffer.from(`retry: ${ms}\n`));

/**
 * Sets the client's reconnection time (WHATWG HTML §9.2.6), so that not all come at one moment. The field
 * counts at the end of its line; an empty line behind it would be an event to some clients.
 */
export function retryHint(): Buffer {
  return comeBack[Math.floor(Math.random() * comeBack.length)] ?? HEARTBEAT;
}

const LINE_END = /\r\n|\r|\n/g;
const NEXT_LINE = '\ndata: ';
/** Characters of data that are encoded in one go. */
const PIECE_LENGTH = 8 * 1024;
/** What encoding costs, in steps: a character, and a line. */
const CHARACTER_STEPS = 0.2;
const LINE_STEPS = 6;
const CARRIAGE_RETURN = 0x0d;

/** {@link eventOf} in one go. */
export function encodeEvent(update: Update): Buffer {
  return completed(eventOf(update, unlimitedBudget()));
}

/**
 * An update as a server-sent event (WHATWG HTML §9.2.5). The fields' values have been checked to
 * hold no line ends when the update was accepted; the data may hold any, and each begins a line of
 * its own, so that nothing in it can become a field. Yields when nothing is left of the budget.
 */
export function* eventOf(update: Update, budget: Budget): Generator<void, Buffer, void> {
  const { data, type, retry, id } = update;
  let text = type === null ? '' : `event: ${type}\n`;
  if (retry !== null) text += `retry: ${retry}\n`;
  text += `id: ${id}\ndata: `;
  const pieces: Buffer[] = [];
  for (let at = 0; at < data.length; ) {
    const end = pieceEnd(data, at);
    const piece = data.slice(at, end);
    const lines = piece.replace(LINE_END, NEXT_LINE);
    text += lines;
    budget.spend(
      piece.length * CHARACTER_STEPS +
        ((lines.length - piece.length) / NEXT_LINE.length) * LINE_STEPS,
    );
    at = end;
    if (at === data.length) break;
    pieces.push(Buffer.from(text, 'utf8'));
    text = '';
    if (budget.isSpent) yield;
  }
  const last = Buffer.from(`${text}\n\n`, 'utf8');
  return pieces.length === 0 ? last : Buffer.concat([...pieces, last]);
}

/** Where a piece ends: neither in the middle of a line end nor of a character. */
function pieceEnd(data: string, start: number): number {
  const end = start + PIECE_LENGTH;
  if (end >= data.length) return data.length;
  const before = data.charCodeAt(end - 1);
  const isCut = before === CARRIAGE_RETURN || (before >= 0xd800 && before <= 0xdbff);
  return isCut ? end + 1 : end;
}

/** The pieces as one, framed. A single piece that needs no frame is handed on as it is. */
export function framed(pieces: readonly Buffer[], bytes: number, framing: Framing): Buffer {
  const [first] = pieces;
  if (framing === 'plain') {
    return pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces, bytes);
  }
  const head = `${bytes.toString(16)}\r\n`;
  const chunk = Buffer.allocUnsafeSlow(head.length + bytes + 2);
  chunk.write(head, 0, 'latin1');
  let at = head.length;
  for (const piece of pieces) at += piece.copy(chunk, at);
  chunk.write('\r\n', at, 'latin1');
  return chunk;
}

/** An update as it is given out: its topics and its event, each made once for all who get it. */
export class PreparedUpdate {
  readonly update: Update;
  readonly topics: readonly Topic[];
  /** The event is encoded in slices; the budget is that of the encoding. */
  readonly #budget = new Budget(0);
  #encoding: Generator<void, Buffer, void> | null = null;
  #event: Buffer | null = null;

  /** @param topics that have been read before; null to read them */
  constructor(update: Update, base: string, topics: readonly Topic[] | null = null) {
    this.update = update;
    this.topics = topics ?? update.topics.map((text) => parseTopic(text, base));
  }

  /** The event; null when nothing is left of the budget before it is encoded: asked again it goes on. */
  event(budget: Budget): Buffer | null {
    if (this.#event !== null) return this.#event;
    this.#encoding ??= eventOf(this.update, this.#budget);
    this.#budget.left = budget.left;
    const { value } = this.#encoding.next();
    budget.left = this.#budget.left;
    if (value === undefined) return null;
    this.#event = value;
    this.#encoding = null;
    return value;
  }
}

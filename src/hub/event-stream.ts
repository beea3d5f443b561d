import { Budget } from '../kernel/scheduler.ts';
import type { Update } from './update.ts';
import { parseTopic, type Topic } from './topic.ts';

/** How the bytes of a connection are framed: as chunks (RFC 9112 §7.1), or not at all. */
export type Framing = 'chunked' | 'plain';

/** A comment, which keeps proxies and clients from closing a silent stream (WHATWG HTML §9.2.6). */
export const HEARTBEAT: Buffer = Buffer.from(':\n');

/** When clients should reconnect after their hub has ended: a random time in milliseconds. */
const COME_BACK_MS = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500] as const;
const comeBack = COME_BACK_MS.map((ms) => Buffer.from(`retry: ${ms}\n`));

/**
 * Sets the reconnection time of the client (WHATWG HTML §9.2.6), so that clients do not all reconnect at
 * once. The field takes effect at the end of its line. An empty line after it would be an event to some
 * clients.
 */
export function retryHint(): Buffer {
  return comeBack[Math.floor(Math.random() * comeBack.length)] ?? HEARTBEAT;
}

const LINE_END = /\r\n|\r|\n/g;
const NEXT_LINE = '\ndata: ';
/** Characters of data that are encoded without a pause. */
const PIECE_LENGTH = 8 * 1024;
/** Cost of encoding a character and a line, in steps. */
const CHARACTER_STEPS = 0.2;
const LINE_STEPS = 6;
const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;

/**
 * An update as a server-sent event (WHATWG HTML §9.2.5). The other fields were checked for line ends when the
 * update was accepted. The data may contain line ends; each line of it gets its own `data:` field, so nothing
 * in it can become another field. Yields when the budget is used up.
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

/** The end of a piece: never in the middle of a line end or of a character. */
function pieceEnd(data: string, start: number): number {
  const end = start + PIECE_LENGTH;
  if (end >= data.length) return data.length;
  const before = data.charCodeAt(end - 1);
  const isCut =
    before === CARRIAGE_RETURN
      ? data.charCodeAt(end) === LINE_FEED
      : before >= 0xd800 && before <= 0xdbff;
  return isCut ? end + 1 : end;
}

/** The pieces as one framed piece. A single piece without framing is returned as it is. */
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

/** An update in delivery: its topics and its event, each created once for all subscribers. */
export class PreparedUpdate {
  readonly update: Update;
  readonly topics: readonly Topic[];
  /** The event is encoded in slices. This is the budget of the encoder. */
  readonly #budget = new Budget(0);
  #encoding: Generator<void, Buffer, void> | null = null;
  #event: Buffer | null = null;

  /** @param topics the parsed topics; null to parse them */
  constructor(update: Update, base: string, topics: readonly Topic[] | null = null) {
    this.update = update;
    this.topics = topics ?? update.topics.map((text) => parseTopic(text, base));
  }

  /** The event; null if the budget is used up before it is encoded. Another call continues. */
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

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

/** The event of an update whose data is one piece. */
function shortEvent(update: Update, budget: Budget): Buffer {
  return Buffer.from(`${fieldsBeforeData(update)}${dataLines(update.data, budget)}\n\n`, 'utf8');
}

/** The event of an update with more data. Yields when the budget is used up. */
function* longEvent(update: Update, budget: Budget): Generator<void, Buffer, void> {
  const { data } = update;
  const pieces = [Buffer.from(fieldsBeforeData(update), 'utf8')];
  for (let at = 0; at < data.length; ) {
    const end = pieceEnd(data, at);
    pieces.push(Buffer.from(dataLines(data.slice(at, end), budget), 'utf8'));
    at = end;
    if (budget.isSpent && at < data.length) yield;
  }
  pieces.push(Buffer.from('\n\n', 'utf8'));
  return Buffer.concat(pieces);
}

function fieldsBeforeData({ type, retry, id }: Update): string {
  let text = type === null ? '' : `event: ${type}\n`;
  if (retry !== null) text += `retry: ${retry}\n`;
  return `${text}id: ${id}\ndata: `;
}

/** A piece of the data, with a field for each line that begins in it. */
function dataLines(piece: string, budget: Budget): string {
  const lines = piece.replace(LINE_END, NEXT_LINE);
  budget.spend(
    piece.length * CHARACTER_STEPS +
      ((lines.length - piece.length) / NEXT_LINE.length) * LINE_STEPS,
  );
  return lines;
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

/**
 * An update in delivery: its topics and its event, each created once for all subscribers.
 *
 * The event is a server-sent event (WHATWG HTML §9.2.5). The other fields were checked for line ends when the update
 * was accepted. The data may contain line ends; each line of it gets its own `data:` field, so nothing in it can
 * become another field.
 */
export class PreparedUpdate {
  readonly update: Update;
  readonly topics: readonly Topic[];
  #event: Buffer | null = null;
  /** The encoder of a long event, and its budget. */
  #encoder: ReturnType<typeof encoderOf> | null = null;

  /** @param topics the parsed topics; null to parse them */
  constructor(update: Update, base: string, topics: readonly Topic[] | null = null) {
    this.update = update;
    this.topics = topics ?? update.topics.map((text) => parseTopic(text, base));
  }

  /** The event; null if the budget is used up before it is encoded. Another call continues. */
  event(budget: Budget): Buffer | null {
    this.#event ??= this.#encode(budget);
    return this.#event;
  }

  #encode(budget: Budget): Buffer | null {
    // Most events are short, and a history may have very many of them.
    if (this.update.data.length <= PIECE_LENGTH) return shortEvent(this.update, budget);
    this.#encoder ??= encoderOf(this.update);
    const { encoding, budget: own } = this.#encoder;
    own.left = budget.left;
    const { value } = encoding.next();
    budget.left = own.left;
    if (value === undefined) return null;
    this.#encoder = null;
    return value;
  }
}

function encoderOf(update: Update) {
  const budget = new Budget(0);
  return { encoding: longEvent(update, budget), budget };
}

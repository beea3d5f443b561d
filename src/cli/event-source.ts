/** A server-sent event as it was received. */
export interface ReceivedEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** What a stream says beside its events. */
export interface StreamPosition {
  /** Last event id, for the next connection. */
  lastEventId: string;
  /** Milliseconds to wait before it; null when the stream did not say. */
  retryMs: number | null;
}

/** Shortest wait that a stream may ask for; without one its end would be asked for again at once. */
const MIN_RETRY_MS = 100;
/** Longest line that is kept while its end has not arrived. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

/** Parses a `text/event-stream` (WHATWG HTML §9.2.6), chunk by chunk. */
export async function* parseEventStream(
  chunks: AsyncIterable<Buffer>,
  position: StreamPosition,
): AsyncGenerator<ReceivedEvent> {
  const decoder = new TextDecoder('utf-8');
  let buffered = '';
  let data: string[] = [];
  let type = '';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    const mayEnd = /[\r\n]/.test(text) || buffered.endsWith('\r');
    buffered += text;
    if (buffered.length > MAX_LINE_LENGTH) throw new RangeError('The stream has an endless line');
    // A long line is not looked through again with each of its chunks.
    if (!mayEnd) continue;
    // A carriage return at the very end may be the first half of CRLF: it waits for what follows.
    const lines = buffered.split(/\r\n|\r(?!$)|\n/);
    buffered = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) {
          yield { id: position.lastEventId, type: type || 'message', data: data.join('\n') };
        }
        data = [];
        type = '';
        continue;
      }
      const [field, value] = parseField(line);
      if (field === 'data') data.push(value);
      else if (field === 'event') type = value;
      else if (field === 'id' && !value.includes('\0')) position.lastEventId = value;
      else if (field === 'retry' && /^\d{1,9}$/.test(value)) {
        position.retryMs = Math.max(Number(value), MIN_RETRY_MS);
      }
    }
  }
}

function parseField(line: string): [field: string, value: string] {
  const colon = line.indexOf(':');
  if (colon === -1) return [line, ''];
  const value = line.slice(colon + 1);
  return [line.slice(0, colon), value.startsWith(' ') ? value.slice(1) : value];
}

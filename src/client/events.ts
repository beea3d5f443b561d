export interface Update {
  /** The update's id; empty for an event without one. */
  readonly id: string;
  /** SSE event name. */
  readonly type: string;
  readonly data: string;
}

export interface EventReader {
  readonly update: (update: Update) => void;
  /**
   * Called with the wait before a new attempt that the server asks for, from 1 up to 999,999,999. Other
   * values are ignored: publishers choose the value, 0 could not be doubled, and longer waits do not fit a
   * timer.
   */
  readonly retry: (milliseconds: number) => void;
}

/** Reads an event stream to its end (WHATWG HTML §9.2.6). */
export async function readEvents(body: ReadableStream<Uint8Array>, to: EventReader): Promise<void> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  /** The line that is not complete yet. */
  let rest = '';
  /** Its last character, which may be the first half of a line break. */
  let end = '';
  let [id, type] = ['', ''];
  let data: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const text = decoder.decode(value, { stream: true });
    rest += text;
    // Splitting a long line again for each part of it would take quadratic time.
    if (!/\n|\r/.test(end + text)) continue;
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? '';
    end = rest.slice(-1);
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) to.update({ id, type: type || 'message', data: data.join('\n') });
        [type, data] = ['', []];
        continue;
      }
      const [field, text = ''] = line.split(/: ?(.*)/s);
      if (field === 'data') data.push(text);
      else if (field === 'event') type = text;
      else if (field === 'id' && !text.includes('\0')) id = text;
      else if (field === 'retry' && /^0*[1-9]\d{0,8}$/.test(text)) to.retry(Number(text));
    }
  }
}

/** Waits, at most until `signal` is aborted. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    // Replaces that of the pause before. A listener would stay until the end of the subscription.
    signal.onabort = resolve;
  });
}

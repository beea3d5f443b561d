// Texts from outside: JSON, URLs and hexadecimal digits.

/** The value of a JSON text (RFC 8259) from outside; undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The members of a JSON object; null for any other text. */
export function parseJsonObject(text: string): Readonly<Record<string, unknown>> | null {
  const value = parseJson(text);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : null;
}

/**
 * Reads the whole body of a request or a response.
 *
 * @param body null if there is none
 * @throws Error if it is longer than `maxBytes`
 */
export async function readBounded(
  body: AsyncIterable<Uint8Array> | null,
  maxBytes: number,
): Promise<Buffer> {
  const bytes = await readWithin(body ?? [], maxBytes);
  if (bytes === null) throw new Error(`its answer is larger than ${maxBytes} bytes`);
  return bytes;
}

/** Reads a stream of bytes to its end; null, and the stream is closed, if it is longer than `maxBytes`. */
export async function readWithin(
  stream: AsyncIterable<unknown> | Iterable<unknown>,
  maxBytes: number,
): Promise<Buffer | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream) {
    // A stream without an encoding yields bytes.
    const bytes = chunk as Uint8Array;
    size += bytes.length;
    if (size > maxBytes) return null;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

/**
 * Parses a URL relative to `base` (WHATWG URL §4.4); returns null if the text is not a URL. This is the only
 * place that passes text from outside to Node's own parser. It corrects the mistakes of Node 20 and 22.
 */
export function parseUrl(text: string, base?: string): URL | null {
  return orNull(() => requireUrl(text, base));
}

/** Returns null if `read` throws, for readers whose errors would not help an operator. */
export function orNull<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

/**
 * Parses a URL that has been checked before.
 *
 * @throws TypeError if it is not a URL
 */
export function requireUrl(text: string, base?: string): URL {
  // `URL.canParse` is not used: after some thousand calls Node 20 rejects valid URLs whose host is not ASCII.
  const url = new URL(text, base);
  // An opaque path (§4.1) has no segments.
  if (url.pathname.startsWith('/')) {
    if (DOT_SEGMENT.test(url.pathname)) url.pathname = withoutDotSegments(url);
  } else if (url.pathname === '' && writesPath(text)) {
    url.pathname = '/';
    // Without a host, the setter treats the path as opaque.
    if (url.pathname === '') return new URL(`${url.protocol}/${url.search}${url.hash}`);
  }
  return url;
}

/**
 * The text of a path with its dot segments resolved (§4.4, path state). Node 20 and 22 do not resolve them
 * after a segment that begins with a dot: `/x/.y/../z`.
 */
export function withoutDotSegments({
  pathname,
  protocol,
}: Pick<URL, 'pathname' | 'protocol'>): string {
  const segments = pathname.slice(1).split('/');
  const kept: string[] = [];
  segments.forEach((segment, index) => {
    const isLast = index === segments.length - 1;
    if (DOUBLE_DOT.test(segment)) {
      // "Shorten a path" (§4.4) keeps a drive letter.
      const isDrive = protocol === 'file:' && kept.length === 1 && DRIVE.test(kept[0] ?? '');
      if (!isDrive) kept.pop();
      if (isLast) kept.push('');
    } else if (SINGLE_DOT.test(segment)) {
      if (isLast) kept.push('');
    } else kept.push(segment);
  });
  return `/${kept.join('/')}`;
}

const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:\/|$)/i;
const SINGLE_DOT = /^(?:\.|%2e)$/i;
const DOUBLE_DOT = /^(?:\.|%2e){2}$/i;
const DRIVE = /^[a-z]:$/i;

/** Whether a reference has a path. Node 20 and 22 lose the path of `foo://h/..`. */
function writesPath(text: string): boolean {
  const written = text.replace(/[\t\n\r]/g, '').trim();
  const path = written.replace(/^[a-z][a-z0-9+.-]*:/i, '').replace(/^\/\/[^/?#]*/, '');
  return path !== '' && !path.startsWith('?') && !path.startsWith('#');
}

/** The value of a hexadecimal digit in ASCII; -1 for any other byte, and for none. */
export function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

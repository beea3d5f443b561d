import { HeaderList } from './header-list.ts';

/** RFC 9113 §8.2.2: connection-specific fields make an HTTP/2 message malformed. */
const FORBIDDEN = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

export interface Http2Head {
  readonly method: string;
  readonly authority: string | null;
  /** Without pseudo-header and connection-specific fields; cookie crumbs are joined (RFC 9113 §8.2.3). */
  readonly headers: HeaderList;
}

/** Reads the fields of a request, including pseudo-header fields. */
export function readHttp2Head(raw: readonly string[]): Http2Head {
  const headers = new HeaderList();
  let method = 'GET';
  let authority: string | null = null;
  let cookie = '';
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? '';
    const value = raw[i + 1] ?? '';
    if (name === ':method') method = value;
    else if (name === ':authority') authority = value;
    else if (name === 'cookie') cookie += cookie === '' ? value : `; ${value}`;
    else if (!name.startsWith(':') && !FORBIDDEN.has(name)) headers.append(name, value);
  }
  if (cookie !== '') headers.append('cookie', cookie);
  return { method, authority, headers };
}

/**
 * The fields of a response or its trailers in the format of Node's HTTP/2. Node throws if certain fields
 * occur twice, so lists are joined.
 */
export function http2Fields(headers: HeaderList): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.create(null);
  headers.forEach((key, value) => {
    if (FORBIDDEN.has(key) || key.startsWith(':') || (key === 'te' && value !== 'trailers')) return;
    const present = record[key];
    if (present === undefined) record[key] = value;
    else if (typeof present !== 'string') present.push(value);
    else if (key === 'set-cookie') record[key] = [present, value];
    else record[key] = `${present}${key === 'cookie' ? '; ' : ', '}${value}`;
  });
  return record;
}

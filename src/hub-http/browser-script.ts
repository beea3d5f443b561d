import { gzipSync } from 'node:zlib';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { parseQuery, valuesOf } from './form.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/** A script as browsers get it. */
export interface BrowserScript {
  readonly bytes: Buffer;
  /** Changes with the bytes. */
  readonly version: string;
}

/**
 * `GET HUB/live.js?v=VERSION`, `GET HUB/client.js`: for ever, where the version is the current one.
 * Nothing in it is secret, and a module of another origin is read under CORS: every page may.
 */
export function createScriptAnswer(script: BrowserScript | null): (exchange: Exchange) => void {
  if (script === null) return absent;
  const { bytes, version } = script;
  const compressed = gzipSync(bytes, { level: 9 });
  return (exchange) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD')
      throw methodNotAllowed('GET, HEAD');
    const isCurrent = valuesOf(parseQuery(exchange.target) ?? [], 'v')[0] === version;
    const fields = {
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': isCurrent ? 'public, max-age=31536000, immutable' : 'no-cache',
      etag: `"${version}"`,
      vary: 'Accept-Encoding',
      'access-control-allow-origin': '*',
    };
    if (exchange.headers.get('if-none-match')?.includes(`"${version}"`) === true) {
      answer(exchange, 304, fields);
    } else if (takesGzip(exchange.headers.combined('accept-encoding') ?? '')) {
      answer(exchange, 200, { ...fields, 'content-encoding': 'gzip' }, compressed);
    } else answer(exchange, 200, fields, bytes);
  };
}

const absent = (): never => {
  throw notFound();
};

function takesGzip(accepted: string): boolean {
  return /(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[\d.]+\s*)?(?:,|$)/i.test(
    accepted,
  );
}

import { gzipSync } from 'node:zlib';
import type { Exchange } from '../http/exchange.ts';
import { selectResponse } from '../http/representation.ts';
import { parseQuery, valuesOf } from './form.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/** A script for browsers. */
export interface BrowserScript {
  readonly bytes: Buffer;
  /** Changes whenever the bytes change. */
  readonly version: string;
}

/**
 * `GET HUB/live.js?v=VERSION`, `GET HUB/client.js`: may be cached forever if the version is the current one.
 * It contains no secret, and a module from another origin is read with CORS, so every page may read it.
 */
export function createScriptAnswer(script: BrowserScript | null): (exchange: Exchange) => void {
  if (script === null) return absent;
  const { bytes, version } = script;
  const compressed = gzipSync(bytes, { level: 9 });
  return (exchange) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD')
      throw methodNotAllowed('GET, HEAD');
    const isCurrent = valuesOf(parseQuery(exchange.target) ?? [], 'v')[0] === version;
    const isZipped = takesGzip(exchange.headers.combined('accept-encoding') ?? '');
    const content = isZipped ? compressed : bytes;
    const fields = {
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': isCurrent ? 'public, max-age=31536000, immutable' : 'no-cache',
      vary: 'Accept-Encoding',
      'access-control-allow-origin': '*',
    };
    const { head } = selectResponse(exchange, {
      size: content.length,
      etag: `"${version}${isZipped ? '-gzip' : ''}"`,
      modifiedMs: null,
      fields: { ...fields, ...(isZipped ? { 'content-encoding': 'gzip' } : {}) },
      takesRanges: false,
    });
    exchange.begin({ ...head, source: 'gateway' }).end(head.status === 200 ? content : undefined);
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

import type { ResponseHead } from './exchange.ts';
import type { HeaderList } from './header-list.ts';

/** Fields of which a message has one: with two of them clients take the first, or none. */
const SINGLE = new Set([
  'content-length',
  'content-location',
  'content-range',
  'content-type',
  'date',
  'etag',
  'last-modified',
  'location',
  'retry-after',
]);

/** Fields that are wrong for another body than their own. */
export const OF_THE_BODY: ReadonlySet<string> = new Set([
  'accept-ranges',
  'content-encoding',
  'content-length',
  'content-range',
  'etag',
  'last-modified',
  'trailer',
  'transfer-encoding',
]);

/**
 * Puts fields that were set before a response was there in front of those that it has itself. Those of
 * the gateway's own answers take the place of set ones; an app's stand beside them.
 */
export function withPreset({ headers, isBesidePreset }: ResponseHead, preset: HeaderList): void {
  if (preset.isEmpty) return;
  const own = headers.clone();
  headers.deleteWhere(() => true);
  for (const [name, value] of preset) {
    const key = name.toLowerCase();
    if (isBesidePreset === true || key === 'vary' || !own.has(key)) headers.append(name, value);
  }
  for (const [name, value] of own) {
    const isSecond = isBesidePreset === true && SINGLE.has(name.toLowerCase()) && preset.has(name);
    if (!isSecond) headers.append(name, value);
  }
}

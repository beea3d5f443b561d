import type { ResponseHead } from './exchange.ts';
import type { HeaderList } from './header-list.ts';

/** Fields that a message has only once. With two of them, clients use the first one or none. */
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

/** Fields that describe one particular body. */
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
 * Adds the preset fields of an exchange in front of the fields of its response. Fields of hubgate's own
 * responses replace preset fields with the same name; fields of the app stand beside them.
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

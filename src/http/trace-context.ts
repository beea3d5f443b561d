import { randomFillSync } from 'node:crypto';
import type { HeaderList } from './header-list.ts';

/** Where a request stands in a trace. Whoever sends it may say so: it decides nothing. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits: this gateway's own. */
  readonly spanId: string;
  /** That of whoever sent the request; null where the trace begins here. */
  readonly parentId: string | null;
  /** Two hexadecimal digits. */
  readonly flags: string;
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** A new trace is recorded, as far as the gateway is asked: whoever comes after it may decide so too. */
const SAMPLED = '01';
/** The flags that are known: sampled, random trace id (W3C Trace Context Level 2 §3.2.2.5). */
const KNOWN_FLAGS = 0b11;

/**
 * Continues the trace of a request, or begins one, and has the request say so from here on.
 *
 * @see https://www.w3.org/TR/trace-context/#processing-model
 */
export function traceRequest(headers: HeaderList): TraceContext {
  const continued = readTraceparent(headers.getAll('traceparent'));
  const trace = continued ?? {
    traceId: randomId(16),
    spanId: randomId(8),
    parentId: null,
    flags: SAMPLED,
  };
  // §3.3: what somebody adds to a trace that cannot be read belongs to no trace.
  if (continued === null) headers.delete('tracestate');
  headers.set('traceparent', `00-${trace.traceId}-${trace.spanId}-${trace.flags}`);
  return trace;
}

/** null for what is absent, sent twice or no valid value (§3.2.2). */
function readTraceparent([value = '', ...more]: readonly string[]): TraceContext | null {
  if (more.length > 0) return null;
  const [, version, traceId = '', parentId = '', flags = '', rest] = TRACEPARENT.exec(value) ?? [];
  if (version === undefined || version === 'ff') return null;
  // §3.2.4: only later versions may have more behind.
  if (version === '00' && rest !== undefined) return null;
  if (isZero(traceId) || isZero(parentId)) return null;
  const known = (Number.parseInt(flags, 16) & KNOWN_FLAGS).toString(16).padStart(2, '0');
  return { traceId, spanId: randomId(8), parentId, flags: known };
}

function isZero(id: string): boolean {
  return /^0*$/.test(id);
}

/** Random bytes that wait to be used: asking the system for each id costs more than the id. */
const pool = Buffer.alloc(4096);
let used = pool.length;

function randomId(bytes: number): string {
  if (used + bytes > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += bytes;
  const id = pool.toString('hex', used - bytes, used);
  return isZero(id) ? randomId(bytes) : id;
}

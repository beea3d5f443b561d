import { randomFillSync } from 'node:crypto';
import type { HeaderList } from './header-list.ts';

/** The position of a request in a trace. Any client can set it, so no decision depends on it. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits: the id of this gateway's own span. */
  readonly spanId: string;
  /** The span of the sender of the request; null if the trace begins here. */
  readonly parentId: string | null;
  /** Two hexadecimal digits. */
  readonly flags: string;
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** A new trace is marked as sampled. Later participants can still decide for themselves. */
const SAMPLED = '01';
/** The known flags: sampled, random trace id (W3C Trace Context Level 2 §3.2.2.5). */
const KNOWN_FLAGS = 0b11;

/**
 * Continues the trace of a request, or begins one, and updates the fields of the request.
 *
 * @see https://www.w3.org/TR/trace-context/#processing-model
 */
export function traceRequest(headers: HeaderList): TraceContext {
  const continued = headers.has('traceparent')
    ? readTraceparent(headers.getAll('traceparent'))
    : null;
  const trace = continued ?? {
    traceId: randomId(16),
    spanId: randomId(8),
    parentId: null,
    flags: SAMPLED,
  };
  // §3.3: the state of a trace that cannot be read is dropped.
  if (continued === null) headers.delete('tracestate');
  headers.set('traceparent', `00-${trace.traceId}-${trace.spanId}-${trace.flags}`);
  return trace;
}

/** Returns null for a field that is absent, sent twice or invalid (§3.2.2). */
function readTraceparent([value = '', ...more]: readonly string[]): TraceContext | null {
  if (more.length > 0) return null;
  const [, version, traceId = '', parentId = '', flags = '', rest] = TRACEPARENT.exec(value) ?? [];
  if (version === undefined || version === 'ff') return null;
  // §3.2.4: only later versions may have further parts.
  if (version === '00' && rest !== undefined) return null;
  if (ZERO_IDS.has(traceId) || ZERO_IDS.has(parentId)) return null;
  const known = (Number.parseInt(flags, 16) & KNOWN_FLAGS).toString(16).padStart(2, '0');
  return { traceId, spanId: randomId(8), parentId, flags: known };
}

/** §3.2.2: ids that are not valid. */
const ZERO_IDS: ReadonlySet<string> = new Set(['0'.repeat(32), '0'.repeat(16)]);

/** A pool of random bytes. A system call for each id would cost more than the id itself. */
const pool = Buffer.alloc(4096);
let used = pool.length;

function randomId(bytes: number): string {
  if (used + bytes > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += bytes;
  const id = pool.toString('hex', used - bytes, used);
  return ZERO_IDS.has(id) ? randomId(bytes) : id;
}

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
  if (continued !== null) {
    const { traceId, spanId, flags } = continued;
    headers.set('traceparent', `00-${traceId}-${spanId}-${flags}`);
    return continued;
  }
  // §3.3: the state of a trace that cannot be read is dropped.
  headers.delete('tracestate');
  const value = newTraceparent();
  headers.set('traceparent', value);
  return { traceId: traceIdOf(value), spanId: spanIdOf(value), parentId: null, flags: SAMPLED };
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
  return { traceId, spanId: spanIdOf(newTraceparent()), parentId, flags: known };
}

/** §3.2.2: ids that are not valid. */
const ZERO_IDS: ReadonlySet<string> = new Set(['0'.repeat(32), '0'.repeat(16)]);

/** Random bytes. A system call for each trace would cost more than everything else about it. */
const pool = Buffer.alloc(4096);
let used = pool.length;
const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

/** The bytes of the last new field, whose ids the next one replaces. */
const field = Buffer.from(`00-${'0'.repeat(32)}-${'0'.repeat(16)}-${SAMPLED}`);
const [TRACE_ID, TRACE_ID_END, SPAN_ID, SPAN_ID_END] = [3, 35, 36, 52];
const DIGITS = Buffer.from('0123456789abcdef');

/** The value of the field for a new trace. */
function newTraceparent(): string {
  if (used + TRACE_ID_BYTES + SPAN_ID_BYTES > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const isTrace = drawId(TRACE_ID, TRACE_ID_BYTES);
  const isSpan = drawId(SPAN_ID, SPAN_ID_BYTES);
  return isTrace && isSpan ? field.toString('latin1') : newTraceparent();
}

/**
 * Writes random bytes into the field. Returns false if all are zero. Only bytes are compared, because Node 26 takes half a
 * microsecond to look up two new strings in a set.
 */
function drawId(start: number, bytes: number): boolean {
  let at = start;
  let all = 0;
  for (const end = used + bytes; used < end; used += 1) {
    const byte = pool[used] ?? 0;
    all |= byte;
    field[at] = DIGITS[byte >> 4] ?? 0;
    field[at + 1] = DIGITS[byte & 15] ?? 0;
    at += 2;
  }
  return all !== 0;
}

function traceIdOf(value: string): string {
  return value.slice(TRACE_ID, TRACE_ID_END);
}

function spanIdOf(value: string): string {
  return value.slice(SPAN_ID, SPAN_ID_END);
}

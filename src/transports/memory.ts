import { createProcessBoard } from '../hub/presence-board.ts';
import type { LogEntry, Transport } from '../hub/transport.ts';
import type { Update } from '../hub/update.ts';
import { HubgateError } from '../kernel/error.ts';

export interface MemoryTransportOptions {
  /** Updates kept, 1 at least; older ones are forgotten. */
  readonly size: number;
}

/** A log in the memory of this process: quick, bounded, and gone with the process. */
export function createMemoryTransport({ size }: MemoryTransportOptions): Transport {
  /** A ring: the entry at position p is in slot p modulo its size. */
  const ring: LogEntry[] = [];
  let position = 0;
  let lastEventId: string | null = null;
  let closed = false;
  let deliver: (entries: readonly LogEntry[]) => void = () => {};

  const oldest = (): number => Math.max(1, position - size + 1);
  const at = (wanted: number): LogEntry | undefined => ring[wanted % size];
  const refuseClosed = (): void => {
    if (closed) throw new HubgateError('transport-closed', 'The memory transport is closed');
  };

  return {
    get position() {
      return position;
    },
    get lastEventId() {
      return lastEventId;
    },
    // Async, so that a closed transport rejects like any other.
    async append(update: Update) {
      refuseClosed();
      position += 1;
      lastEventId = update.id;
      const entry = { position, update };
      ring[position % size] = entry;
      deliver([entry]);
    },
    tail(listener) {
      deliver = listener;
    },
    async find(eventId) {
      for (let wanted = oldest(); wanted <= position; wanted += 1) {
        if (at(wanted)?.update.id === eventId) return wanted;
      }
      return null;
    },
    async read(after, limit) {
      const entries: LogEntry[] = [];
      for (let wanted = Math.max(after + 1, oldest()); wanted <= position; wanted += 1) {
        if (entries.length === limit) break;
        const entry = at(wanted);
        if (entry !== undefined) entries.push(entry);
      }
      return entries;
    },
    presence: createProcessBoard(),
    // Nobody else can add anything.
    wake() {},
    async check() {
      refuseClosed();
    },
    async close() {
      closed = true;
    },
  };
}

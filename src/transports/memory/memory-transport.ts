import { createProcessBoard } from '../../hub/presence-board.ts';
import type { LogEntry, Transport } from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';

export interface MemoryTransportOptions {
  /** Updates kept, 1 at least; older ones are forgotten. */
  readonly size: number;
}

/** An entry that knows the next one with its id, so that an id is found however often it was used. */
interface Kept {
  readonly entry: LogEntry;
  next: number | null;
}

/** A log in the memory of this process: quick, bounded, and gone with the process. */
export function createMemoryTransport({ size }: MemoryTransportOptions): Transport {
  /** A ring: the entry at position p is in slot p modulo its size. */
  const ring: Kept[] = [];
  /** Id → positions of the first and of the last kept entry with it. */
  const ids = new Map<string, { first: number; last: number }>();
  let position = 0;
  let lastEventId: string | null = null;
  let closed = false;
  let deliver: (entries: readonly LogEntry[]) => void = () => {};

  const oldest = (): number => Math.max(1, position - size + 1);
  const at = (wanted: number): Kept | undefined => ring[wanted % size];
  const refuseClosed = (): void => {
    if (closed) throw new HubgateError('transport-closed', 'The memory transport is closed');
  };
  const forget = ({ next, entry }: Kept): void => {
    const { id } = entry.update;
    const places = ids.get(id);
    if (places === undefined || next === null) ids.delete(id);
    else places.first = next;
  };
  const remember = (id: string): void => {
    const places = ids.get(id);
    if (places === undefined) {
      ids.set(id, { first: position, last: position });
      return;
    }
    const last = at(places.last);
    if (last !== undefined) last.next = position;
    places.last = position;
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
      const evicted = at(position);
      if (evicted !== undefined) forget(evicted);
      const entry = { position, update };
      ring[position % size] = { entry, next: null };
      remember(update.id);
      deliver([entry]);
    },
    tail(listener) {
      deliver = listener;
    },
    async find(eventId) {
      refuseClosed();
      return isPossibleId(eventId) ? (ids.get(eventId)?.first ?? null) : null;
    },
    async read(after, limit, most = Infinity) {
      refuseClosed();
      const entries: LogEntry[] = [];
      let bytes = 0;
      for (let wanted = Math.max(after + 1, oldest()); wanted <= position; wanted += 1) {
        if (entries.length === limit || bytes >= most) break;
        const entry = at(wanted)?.entry;
        if (entry === undefined) continue;
        entries.push(entry);
        bytes += entry.update.data.length;
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

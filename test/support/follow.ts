import { type HistoryEntry, NO_TAIL, type Transport } from '../../src/hub/transport.ts';

/** Receives what a history passes on. */
export function follow(
  transport: Transport,
  deliver: (entries: readonly HistoryEntry[]) => void,
): void {
  transport.tail({ ...NO_TAIL, deliver });
}

import { type LogEntry, NO_TAIL, type Transport } from '../../src/hub/transport.ts';

/** Receives what a history passes on. */
export function follow(
  transport: Transport,
  deliver: (entries: readonly LogEntry[]) => void,
): void {
  transport.tail({ ...NO_TAIL, deliver });
}

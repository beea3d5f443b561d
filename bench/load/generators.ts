import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { constants, setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';
import type {
  RequestsOrder,
  RequestsReport,
  SubscribersOrder,
  SubscribersReport,
} from './orders.ts';
import { TYPESCRIPT } from '../../test/support/process.ts';

/** Subscribers in a process of their own. */
export class Subscribers {
  readonly #child: ChildProcess = generator('subscribers');

  /** Lets all others have the processor first, so that what is measured beside these does not wait for them. */
  yieldProcessor(): void {
    if (this.#child.pid !== undefined)
      setPriority(this.#child.pid, constants.priority.PRIORITY_LOW);
  }

  /** Opens so many streams and resolves when each has its head. */
  async open(order: Omit<Extract<SubscribersOrder, { kind: 'open' }>, 'kind'>): Promise<void> {
    this.#tell({ kind: 'open', ...order });
    await this.#answer('opened');
  }

  /** Resolves to the delays, in microseconds, when so many events have come. */
  expect(events: number): Promise<readonly number[]> {
    this.#tell({ kind: 'expect', events, isMeasured: true });
    return this.#answer('received').then((report) =>
      report.kind === 'received' ? report.delaysUs : [],
    );
  }

  /** Resolves when so many events have come. */
  async receive(events: number): Promise<void> {
    this.#tell({ kind: 'expect', events, isMeasured: false });
    await this.#answer('received');
  }

  async close(): Promise<void> {
    this.#tell({ kind: 'close' });
    await this.#answer('closed');
    this.#child.kill();
  }

  #tell(order: SubscribersOrder): void {
    this.#child.send(order);
  }

  /** Streams may be opened while events are expected, so what is reported need not be the answer to this. */
  async #answer(kind: SubscribersReport['kind']): Promise<SubscribersReport> {
    for (;;) {
      const [report]: SubscribersReport[] = await once(this.#child, 'message');
      if (report === undefined) throw new Error('the subscribers said nothing');
      if (report.kind === 'failed') throw new Error(`a subscriber was refused: ${report.error}`);
      if (report.kind === kind) return report;
    }
  }
}

/** Makes requests from a process of its own, and resolves to what it has seen. */
export async function makeRequests(order: RequestsOrder): Promise<RequestsReport> {
  const child = generator('requests');
  child.send(order);
  const [report]: RequestsReport[] = await once(child, 'message');
  if (report === undefined) throw new Error('the requests said nothing');
  if (report.answers === 0) throw new Error(report.error ?? 'no request was answered');
  return report;
}

function generator(name: 'subscribers' | 'requests'): ChildProcess {
  const program = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  return fork(program, [], { execArgv: TYPESCRIPT });
}

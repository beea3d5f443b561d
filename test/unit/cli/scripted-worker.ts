// A worker that builds nothing: it writes down its orders, and fails those that its configuration
// names, as in `commit fails in 2`.
import cluster from 'node:cluster';
import { appendFileSync } from 'node:fs';
import type { ToWorker } from '../../../src/cli/workers/worker.ts';

const number = String(cluster.worker?.id);
const journal = process.env.SCRIPTED_WORKER_JOURNAL ?? '';
let built = '';

process.on('message', (message: ToWorker) => {
  if (message.kind !== 'order') return;
  const { id, order } = message;
  if (order.kind === 'prepare') {
    built = /"body":"([^"]*)"/.exec(order.config)?.[1] ?? '';
  }
  appendFileSync(journal, `${number} ${order.kind} ${built}\n`);
  if (built.includes(`${order.kind} fails in ${number}`)) {
    const failure = { code: 'listen-failed', message: 'as the script says' };
    process.send?.({ kind: 'failure', id, failure });
    return;
  }
  const report = { report: { endingStreams: 0 }, listeners: [] };
  process.send?.({ kind: 'answer', id, value: order.kind === 'commit' ? report : null });
  if (order.kind === 'stop') process.disconnect();
});
process.send?.({ kind: 'ready' });
process.once('disconnect', () => process.exit(0));

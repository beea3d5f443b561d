// A worker that builds nothing: it writes down its orders, and does what its configuration says, as in
// `commit fails in 2`.
import cluster from 'node:cluster';
import { appendFileSync } from 'node:fs';
import { MAX_UNHANDLED, type ToWorker } from '../../../src/cli/workers/worker.ts';

const number = String(cluster.worker?.id);
const journal = process.env.SCRIPTED_WORKER_JOURNAL ?? '';
let built = '';

process.on('message', (message: ToWorker) => {
  if (message.kind === 'handled') appendFileSync(journal, `${number} handled ${message.id}\n`);
  if (message.kind !== 'order') return;
  const { id, order, given } = message;
  if (order === 'signal' && built.includes(`signals hang in ${number}`)) return;
  if (built.includes(`${order} hangs in ${number}`)) return;
  if (order === 'prepare') {
    built = /"body":"([^"]*)"/.exec(String(given[0]))?.[1] ?? '';
  }
  const counts = order === 'purge' || order === 'revoke';
  const how = counts ? String(given[1]) : built;
  appendFileSync(journal, `${number} ${order} ${how}\n`);
  if (built.includes(`${order} fails in ${number}`)) {
    const failure = { code: 'listen-failed', message: 'as the script says' };
    process.send?.({ kind: 'failure', id, failure });
    return;
  }
  const report = { report: { endingStreams: 0 }, listeners: [] };
  const value = order === 'commit' ? report : counts ? 1 : null;
  process.send?.({ kind: 'answer', id, value });
  if (order === 'commit' && built.includes(`many signals from ${number}`)) {
    const signal = { core: 'caches', kind: 'changed', names: [] };
    for (let id = 1; id <= MAX_UNHANDLED + 1; id += 1)
      process.send?.({ kind: 'signal', signal, id });
  }
  if (order === 'stop') process.disconnect();
});
process.send?.({ kind: 'ready' });
process.once('disconnect', () => process.exit(0));

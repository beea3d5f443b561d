import { openHistory, update } from '../../../support/lmdb-files.ts';

/*
 * Opens and closes a history again and again while the same process stores updates in it, as several hubs of
 * a gateway with one history do, and a hub that leaves the configuration and returns: `opens-often.ts
 * DIRECTORY`. Says how many updates are there at the end.
 */
const [path = ''] = process.argv.slice(2);
const ROUNDS = 40;
let stored = 0;
let closing: Promise<void> = Promise.resolve();
for (let round = 0; round < ROUNDS; round += 1) {
  const transport = await openHistory(path, 500);
  const appended = [1, 2, 3].map(async (index) => {
    await transport.append(update(`${round}-${index}`));
    stored += 1;
  });
  // In every second round nobody else has the history open any more but who is about to close it.
  if (round % 2 === 0) await Promise.all(appended);
  const earlier = closing;
  closing = Promise.all(appended).then(() => transport.close());
  if (round % 3 === 0) await earlier;
}
await closing;
const last = await openHistory(path, 500);
const found = await last.read(0, 1000);
await last.close();
console.log(`stored ${stored}, found ${found.length}`);

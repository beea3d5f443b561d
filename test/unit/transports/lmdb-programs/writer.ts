import { fill, openHistory, update } from '../../../support/lmdb-files.ts';

/* Writes to a history until it is killed, and says a line for each group: `writer.ts DIRECTORY NAME`. */
const [path = '', name = ''] = process.argv.slice(2);
const transport = await openHistory(path, 500);
for (let round = 0; ; round += 1) {
  await fill(transport, 30, (index) => update(`${name}-${round}-${index}`, 'x'.repeat(index * 90)));
  process.stdout.write('\n');
}

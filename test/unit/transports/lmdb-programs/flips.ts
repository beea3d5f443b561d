import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { codeOf } from '../../../../src/kernel/error.ts';
import { fill, historyFile, openHistory, update } from '../../../support/lmdb-files.ts';

/*
 * Changes one bit of a copy of a history, uses it, and so on: `flips.ts FROM TO COUNT [SEED]`. What
 * it says before each is what there is to know when the process does not survive it.
 */
const [from = '', to = '', count = '', seed = '1'] = process.argv.slice(2);
let state = Number(seed);
const result = { told: 0, harmless: 0 };
const original = await readFile(historyFile(from));
process.on('unhandledRejection', () => {});

for (let number = 0; number < Number(count); number += 1) {
  const path = `${to}/${number}`;
  const bytes = Buffer.from(original);
  // Every seventh in the meta pages, two of three near the front of a page, where it hurts.
  const page = below(number % 7 === 0 ? 2 : bytes.length / 4096);
  const at = page * 4096 + below(number % 3 === 0 ? 4096 : 128);
  const bit = below(8);
  bytes[at] = (bytes[at] ?? 0) ^ (1 << bit);
  process.stdout.write(`seed ${seed}, ${number}: page ${page}, byte ${at % 4096}, bit ${bit}\n`);
  await mkdir(path, { recursive: true });
  await writeFile(historyFile(path), bytes);
  if (await tells(() => use(path))) result.told += 1;
  else result.harmless += 1;
  await rm(path, { recursive: true, force: true });
}
process.stdout.write(`${JSON.stringify(result)}\n`);
process.exit(0);

async function use(path: string): Promise<void> {
  const transport = await openHistory(path, 700);
  let isDamaged = false;
  const attempt = async (step: () => Promise<unknown>): Promise<void> => {
    if (await tells(step)) isDamaged = true;
  };
  await attempt(async () => {
    for (let after = 0, more = true; more; ) {
      const page = await transport.read(after, 256);
      after = page.at(-1)?.position ?? 0;
      more = page.length > 0;
    }
  });
  await attempt(() => transport.find('often'));
  await attempt(() => transport.find('id-1400'));
  await attempt(() =>
    fill(transport, 120, (index) => update(`new-${index % 90}`, 'z'.repeat(index * 40))),
  );
  await attempt(() => transport.presence.page(null, 100));
  await attempt(() => transport.presence.leave('urn:s:3'));
  await attempt(() => transport.check());
  await transport.close();
  if (isDamaged) throw Object.assign(new Error('damaged'), { code: 'history-damaged' });
}

async function tells(step: () => Promise<unknown>): Promise<boolean> {
  try {
    await step();
    return false;
  } catch (error) {
    if (codeOf(error) === undefined) throw error;
    return true;
  }
}

/** A pseudo-random whole number (mulberry32). */
function below(limit: number): number {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
}

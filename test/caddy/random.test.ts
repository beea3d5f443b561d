import { after, describe, it } from 'node:test';
import { parseHubfile } from '../support/installed-package.ts';
import { compare } from './answers.ts';
import type { ComparedCase } from './cases.ts';
import {
  caddyOf,
  configurationOf,
  hubgateOptions,
  type Served,
  startCaddy,
  startHubgate,
  type Surroundings,
  surroundings,
} from './programs.ts';
import { randomCase } from './random-cases.ts';

/*
 * Random combinations of directives in both programs. HUBGATE_CADDY_SEEDS=1000-2000 takes other ones than
 * usual; from 1000000 on, they have more kinds of everything. Only a Caddy of the present version is asked: an older one has other faults.
 */
const given = process.env['HUBGATE_CADDY'];
const ranges = (process.env['HUBGATE_CADDY_SEEDS'] ?? '0-120,1000000-1000100').split(',');
const seeds = ranges.flatMap((range) => {
  const [from = 0, to = 0] = range.split('-').map(Number);
  return Array.from({ length: to - from }, (_, index) => from + index);
});
const cases = seeds.map(randomCase);
const indexOf = (one: ComparedCase): number => cases.indexOf(one);

const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
after(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
});

/** Whether the reader takes it; a text that both refuse is not compared. */
function isTaken(one: ComparedCase, around: Surroundings): boolean {
  try {
    parseHubfile(configurationOf([one], indexOf, around, 8080, hubgateOptions(around)), {
      env: {},
    });
    return true;
  } catch {
    return false;
  }
}

interface Pair {
  readonly taken: readonly ComparedCase[];
  readonly gateway: Served;
  readonly caddy: Served;
}

async function start(program: string): Promise<Pair> {
  const around = await surroundings(owner);
  const taken = cases.filter((one) => isTaken(one, around));
  const gateway = await startHubgate(owner, taken, indexOf, around);
  return { taken, gateway, caddy: await startCaddy(owner, program, taken, indexOf, around) };
}

describe('random combinations of directives', () => {
  let pair: Promise<Pair> | null = null;
  for (const one of cases) {
    it(one.title, async (test) => {
      if (given === undefined) {
        test.skip('HUBGATE_CADDY names no Caddy');
        return;
      }
      const program = caddyOf(test, given);
      if (program === null) return;
      pair ??= start(program);
      const { taken, gateway, caddy } = await pair;
      if (!taken.includes(one) || caddy.refuses(one)) {
        test.skip('one of the programs does not take it');
        return;
      }
      await compare(one, gateway, caddy);
    });
  }
});

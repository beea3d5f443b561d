import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ConfigError } from '../../src/index.ts';
import { codeOf } from '../../src/kernel/error.ts';
import { parseHubfile } from '../support/installed-package.ts';
import { compare } from './answers.ts';
import { type ComparedCase, readCases } from './cases.ts';
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

/*
 * Each case of `cases/` is served by hubgate and by a Caddy beside it, and both get the same requests.
 * HUBGATE_CADDY names a Caddy of the present version; without it Debian's is asked whatever has not
 * changed since. HUBGATE_CADDY_CASES takes the cases whose title contains it.
 */
const given = process.env['HUBGATE_CADDY'];
const wanted = process.env['HUBGATE_CADDY_CASES'] ?? '';
const all = readCases();
const cases = all.filter(({ title, file }) => `${file} ${title}`.includes(wanted));
const indexes = new Map(all.map((one, index) => [one, index]));
const indexOf = (one: ComparedCase): number => indexes.get(one) ?? -1;

/** A suite owns whatever serves many cases. */
const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
after(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
});

/** What the reader says of a case; null where it takes it. */
function refusal(one: ComparedCase, around: Surroundings): string | null {
  try {
    const text = configurationOf([one], indexOf, around, 8080, hubgateOptions(around));
    parseHubfile(text.replaceAll('SECURE', '8443'), { env: {} });
    return null;
  } catch (error) {
    // The class is that of the package, not of the source.
    if (codeOf(error) !== 'invalid-config') throw error;
    const { problems } = error as ConfigError;
    return problems.map(({ message, hint }) => `${message}: ${hint ?? ''}`).join('\n');
  }
}

describe('the same text, the same behaviour', () => {
  const isPlain = (one: ComparedCase): boolean =>
    one.verdict.kind !== 'refused' && (given !== undefined || !one.isNewer);
  const beside = cases.filter((one) => !one.isWhole && isPlain(one));
  let around: Surroundings;
  let refusals: ReadonlyMap<ComparedCase, string | null>;
  let gateway: Served;
  let caddy: Promise<Served> | null = null;
  before(async () => {
    around = await surroundings(owner);
    refusals = new Map(cases.map((one) => [one, refusal(one, around)]));
    const taken = beside.filter((one) => refusals.get(one) === null);
    gateway = await startHubgate(owner, taken, indexOf, around);
  });

  for (const one of cases) {
    const { file, title, verdict } = one;
    it(`${file.replace('.cases', '')}: ${title}`, async (test) => {
      const refused = refusals.get(one) ?? null;
      if (verdict.kind === 'refused') {
        assert.ok(refused?.includes(verdict.message), `${one.text}\n${refused ?? 'it is taken'}`);
        return;
      }
      assert.equal(refused, null, one.text);
      const program = caddyOf(test, given);
      if (program === null || !isPlain(one)) {
        if (program !== null) test.skip('another answer of this version of Caddy');
        return;
      }
      if (one.isWhole) {
        const [own, its] = await Promise.all([
          startHubgate(test, [one], indexOf, around),
          startCaddy(test, program, [one], indexOf, around),
        ]);
        await compare(one, own, its);
        return;
      }
      caddy ??= startCaddy(owner, program, beside, indexOf, around);
      await compare(one, gateway, await caddy);
    });
  }
});

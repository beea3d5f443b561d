import assert from 'node:assert/strict';
import { accessSync } from 'node:fs';
import { after, before, describe, it, type TestContext } from 'node:test';
import type { ConfigError } from '../../src/index.ts';
import { codeOf } from '../../src/kernel/error.ts';
import type { Answer } from '../support/http.ts';
import { parseHubfile } from '../support/installed-package.ts';
import { programPath } from '../support/program.ts';
import { type ComparedCase, readCases } from './cases.ts';
import {
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

/** What every program says in its own way. */
const OWN = new Set([
  'accept-ranges',
  'connection',
  'content-length',
  'date',
  'etag',
  'keep-alive',
  'last-modified',
  'server',
  'transfer-encoding',
  'via',
]);

/** What hubgate's own page of an error has. */
const OF_PAGE = new Set([
  'content-security-policy',
  'content-type',
  'vary',
  'x-content-type-options',
  'x-request-id',
]);

/** Where a redirect leads, also where it is relative. */
function resolved(name: string, value: string, target: string): string {
  if (name !== 'location') return value;
  const { href, origin } = new URL(value, `http://own.test${target}`);
  return origin === 'http://own.test' ? href.slice(origin.length) : value;
}

/** An answer without what is every program's own; hubgate has pages where Caddy's errors are empty. */
function shown({ status, headers, body }: Answer, port: number, target: string): string {
  const isPlainError = status >= 400 && headers['x-request-id'] !== undefined;
  // Not shown by any client: a redirect has a link in it, an encoded body depends on its encoder.
  const isRedirect = status >= 300 && status < 400;
  const hasBody = !isPlainError && !isRedirect && headers['content-encoding'] === undefined;
  const fields = Object.entries(headers)
    .filter(([name]) => !OWN.has(name) && !(isPlainError && OF_PAGE.has(name)))
    .filter(([name]) => !isRedirect || name !== 'content-type')
    .map(([name, value]) => `${name}: ${resolved(name, String(value), target)}`)
    .filter((field) => field !== 'vary: Accept-Encoding' || 'content-encoding' in headers)
    .sort();
  const all = [String(status), ...fields, ...(hasBody ? ['', body] : [])];
  return all
    .join('\n')
    .replaceAll(new RegExp(`\\b${port}\\b`, 'g'), 'PORT')
    .trimEnd();
}

async function compare(one: ComparedCase, gateway: Served, caddy: Served): Promise<void> {
  const differences: string[] = [];
  for (const request of one.requests) {
    const [own, its] = await Promise.all([gateway.ask(one, request), caddy.ask(one, request)]);
    const [actual, expected] = [
      shown(own, gateway.port, request.target),
      shown(its, caddy.port, request.target),
    ];
    if (actual === expected) continue;
    const label = `${request.line}\n--- Caddy\n${expected}\n--- hubgate\n${actual}\n`;
    differences.push(label);
  }
  const { verdict } = one;
  if (verdict.kind === 'different') {
    assert.notEqual(differences.length, 0, 'nothing differs any more');
  } else {
    assert.equal(differences.length, 0, `\n${one.text}${differences.join('\n')}`);
  }
}

function caddyOf(test: TestContext): string | null {
  if (given === undefined) return programPath(test, 'caddy');
  accessSync(given);
  return given;
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
      const program = caddyOf(test);
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

import { after, before, describe, it } from 'node:test';
import { compare } from './answers.ts';
import { type ComparedCase, readCases } from './cases.ts';
import { isOfHttp2 } from './http2-request.ts';
import {
  caddyOf,
  type Served,
  startCaddy,
  startHubgate,
  type Surroundings,
  surroundings,
} from './programs.ts';

/*
 * The cases that both programs answer alike, asked again over HTTP/2 with TLS. Each request has a
 * connection of its own, so that none is coalesced.
 */
const given = process.env['HUBGATE_CADDY'];
const wanted = process.env['HUBGATE_CADDY_CASES'] ?? '';
const all = readCases();
const indexes = new Map(all.map((one, index) => [one, index]));
const indexOf = (one: ComparedCase): number => indexes.get(one) ?? -1;
const cases = all.filter(
  ({ file, title, verdict, isWhole, isNewer, isHttp1, requests }) =>
    verdict.kind === 'same' &&
    !isWhole &&
    !isHttp1 &&
    (given !== undefined || !isNewer) &&
    requests.some(isOfHttp2) &&
    `${file} ${title}`.includes(wanted),
);

const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
after(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
});

describe('the same behaviour over HTTP/2', () => {
  let around: Surroundings;
  let gateway: Served;
  let caddy: Promise<Served> | null = null;
  before(async () => {
    around = await surroundings(owner);
    gateway = await startHubgate(owner, cases, indexOf, around, 'http2');
  });

  for (const one of cases) {
    it(`${one.file.replace('.cases', '')}: ${one.title}`, async (test) => {
      const program = caddyOf(test, given);
      if (program === null) return;
      caddy ??= startCaddy(owner, program, cases, indexOf, around, 'http2');
      await compare(one, gateway, await caddy, one.requests.filter(isOfHttp2));
    });
  }
});

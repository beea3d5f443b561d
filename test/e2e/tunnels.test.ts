import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { type EndOptions, openTunnel, tunnelOrigin, useEnd } from '../support/raw-tunnel.ts';

const TOTAL = 2 * 1024 * 1024;
const ROUNDS = 2;

type Manners = Pick<EndOptions, 'slowness' | 'vanishesAfter' | 'largest'>;

/** What the two ends of a tunnel do. */
const MANNERS: readonly { readonly client: Manners; readonly origin: Manners }[] = [
  { client: {}, origin: {} },
  { client: { largest: 2000 }, origin: {} },
  { client: {}, origin: { largest: 2000 } },
  { client: { slowness: 20 }, origin: {} },
  { client: {}, origin: { slowness: 20 } },
  { client: { vanishesAfter: TOTAL / 3 }, origin: {} },
  { client: {}, origin: { vanishesAfter: TOTAL / 3 } },
  { client: { slowness: 5, vanishesAfter: TOTAL / 2 }, origin: { largest: 2000 } },
];

const WAYS = [
  { name: 'HTTP/1.1', isTls: false, isHttp2: false },
  { name: 'TLS', isTls: true, isHttp2: false },
  { name: 'HTTP/2', isTls: true, isHttp2: true },
];

describe('tunnels that share memory', () => {
  it('never deliver a wrong byte, whoever is slow or vanishes', async (test) => {
    const ends = new Map<string, (end: Duplex) => void>();
    await using upstream = await tunnelOrigin((end, path) => ends.get(path)?.(end));
    const [plain, secure] = [await freePort(), await freePort()];
    const route = `{\n\treverse_proxy ${upstream.url}\n}\n`;
    const secureRoute = route.replace('{\n', '{\n\ttls internal\n');
    await startGateway(
      test,
      `http://localhost:${plain} ${route}https://localhost:${secure} ${secureRoute}`,
    );
    const pass = async (way: (typeof WAYS)[number], which: number, round: number) => {
      const path = `/${way.name}/${which}/${round}`;
      const manners = MANNERS[which];
      assert.ok(manners !== undefined);
      const [up, down] = [`${path} up`, `${path} down`];
      const some = { total: TOTAL, largest: randomInt(1000, 300_000) };
      const atOrigin = new Promise<number>((resolve, reject) => {
        ends.set(path, (end) => {
          const options = { ...some, ...manners.origin, sends: down, receives: up };
          useEnd(end, options).then(resolve, reject);
        });
      });
      const client = await openTunnel(way.isTls ? secure : plain, path, way);
      const options = { ...some, ...manners.client, sends: up, receives: down };
      const received = await Promise.all([useEnd(client, options), atOrigin]);
      const isCut = [manners.client, manners.origin].some((one) => one.vanishesAfter !== undefined);
      if (!isCut) assert.deepEqual(received, [TOTAL, TOTAL], path);
    };
    for (let round = 0; round < ROUNDS; round += 1) {
      await Promise.all(WAYS.flatMap((way) => MANNERS.map((_, which) => pass(way, which, round))));
    }
  });
});

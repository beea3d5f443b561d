import { inRounds, type BenchContext } from './context.ts';
import {
  type BenchGateway,
  SOCKETS_ALONE,
  startCurrentCaddy,
  startFloor,
  startHubgate,
  startNginx,
  startSocketsFloor,
  startVarnish,
} from './gateways.ts';
import { cpuDuring, cpuSample, together, wrkRound } from './goals-proxy.ts';
import { http2Requests, wrkRequests } from './load/clients.ts';
import { installed, residentOf } from './processes.ts';

const CONNECTIONS = 64;
/** A compiler that works while the program runs needs this long. */
const WARM_UP_MS = 4000;
const HTTP2_REQUESTS = 20_000;

/** Those that keep answers, Caddy, which asks the app each time, and Node alone with the bytes of a hit. */
const STARTS = [
  startHubgate,
  startCurrentCaddy,
  startNginx,
  startVarnish,
  startFloor,
  startSocketsFloor,
];

const PAGES = [
  ['1 KiB', '/'],
  ['20 KiB', '/page'],
] as const;

/** `cache`: a response of 1 KiB and one of 20 KiB that are kept, one core each, in rounds. */
export async function cache(context: BenchContext): Promise<void> {
  for (const tls of [false, true]) {
    await together(context, { tls, cores: 1, cached: true }, STARTS, async (gateways) => {
      for (const [size, path] of PAGES) {
        const work = `cached ${size}${tls ? ', TLS' : ''}`;
        for (const gateway of gateways) {
          await wrkRequests(gateway, CONNECTIONS, WARM_UP_MS, undefined, path);
        }
        await inRounds(context, gateways, (gateway) => wrkRound(context, gateway, work, path));
        if (tls) await http2(context, gateways, `cached ${size}, HTTP/2`, path);
      }
      for (const { name, pid } of gateways) {
        const work = `cached${tls ? ', TLS' : ''}: resident afterwards`;
        context.note(work, name, 'MB', residentOf(pid) / 1024);
      }
    });
  }
}

async function http2(
  context: BenchContext,
  gateways: readonly BenchGateway[],
  work: string,
  path: string,
): Promise<void> {
  if (installed('h2load') === null) {
    context.skip('HTTP/2', 'h2load (nghttp2-client) is not installed');
    return;
  }
  const able = gateways.filter(({ name }) => name !== SOCKETS_ALONE);
  for (const gateway of able) await http2Requests(gateway, 2 * HTTP2_REQUESTS, path);
  await inRounds(context, able, async (gateway) => {
    // After its pause.
    await http2Requests(gateway, HTTP2_REQUESTS, path);
    const spent = await cpuDuring(gateway, () => http2Requests(gateway, HTTP2_REQUESTS, path));
    return [cpuSample(work, spent, HTTP2_REQUESTS)];
  });
}

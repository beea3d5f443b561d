import { setTimeout as after } from 'node:timers/promises';
import { type BenchContext, inRounds, percentile, type Sample } from './context.ts';
import {
  type BenchGateway,
  type Front,
  startApp,
  startCaddy,
  startCurrentCaddy,
  SOCKETS_ALONE,
  startFloor,
  type StartGateway,
  startHubgate,
  startNginx,
  startSocketsFloor,
} from './gateways.ts';
import { fetchLarge, LARGE_MB } from './gateway-work.ts';
import { http2Requests, ownRequests, wrkRequests } from './load/clients.ts';
import { cpuOf, residentOf } from './processes.ts';

const CONNECTIONS = 64;
/** After so many requests V8 has compiled what all of them run; a slow machine need not answer as many. */
const WARM_UP_REQUESTS = 40_000;
const MAX_WARM_UP_MS = 20_000;
const WARM_UP_STEP_MS = 2000;
const ROUND_MS = 2000;
/**
 * While the others take their turns, V8 drops compiled code and shrinks the young generation. What the first requests
 * afterwards cost is a figure of its own.
 */
const AFTER_PAUSE_MS = 1000;
const WARM_UP_DOWNLOADS = 3;
const DOWNLOADS = 2;
const HTTP2_REQUESTS = 30_000;
/** What a program has taken to start, and gives back by itself when nothing is asked of it, is gone by then. */
const IDLE_MS = 15_000;
/** Of a load of two minutes, and the window after them. */
const WINDOW_MS = 10_000;
const WINDOWS = 13;
const WINDOWS_OF_A_MINUTE = 6;
/** Few, so that what is in flight when garbage is counted is little. */
const GARBAGE_CONNECTIONS = 8;
const GARBAGE_MS = 1000;
/** With them, V8 does the same in each run, and on each Node. */
const GARBAGE_OPTIONS = [
  '--min-semi-space-size=16',
  '--max-semi-space-size=16',
  '--no-concurrent-recompilation',
  `--import=${new URL('../test/support/count-garbage.mjs', import.meta.url).href}`,
];

const ALL: readonly StartGateway[] = [
  startHubgate,
  startCurrentCaddy,
  startCaddy,
  startNginx,
  startFloor,
  startSocketsFloor,
];

/** What each program holds before the first request, `rounds` of each at the same time. */
export function idle(context: BenchContext): Promise<void> {
  const starts = Array.from({ length: context.rounds }, () => ALL).flat();
  return together(context, { tls: false, cores: null }, starts, async (gateways) => {
    await after(IDLE_MS);
    for (const name of new Set(gateways.map((gateway) => gateway.name))) {
      const same = gateways.filter((gateway) => gateway.name === name);
      const held = same.map(({ pid }) => residentOf(pid) / 1024);
      context.noteRounds('resident, idle', name, 'MB', held);
    }
  });
}

/** A response of 1 KiB as each program runs out of the box, by `wrk`, our own generator and `h2load`. */
export async function proxied(context: BenchContext): Promise<void> {
  for (const tls of [false, true]) {
    const work = `proxied 1 KiB, ${tls ? 'TLS' : 'plain'}`;
    await together(context, { tls, cores: null }, ALL, async (gateways) => {
      for (const gateway of gateways) await warmUp(gateway);
      await inRounds(context, gateways, (gateway) => requestRound(context, gateway, work));
      if (tls) {
        const count = context.amount(HTTP2_REQUESTS);
        const able = gateways.filter(({ name }) => name !== SOCKETS_ALONE);
        await inRounds(context, able, async (gateway) => {
          await http2Requests(gateway, HTTP2_REQUESTS);
          const spent = await cpuDuring(gateway, () => http2Requests(gateway, count));
          return [cpuSample('proxied 1 KiB, HTTP/2', spent, count)];
        });
      }
      for (const { name, pid } of gateways) {
        context.note(`${work}: resident afterwards`, name, 'MB', residentOf(pid) / 1024);
      }
    });
  }
}

/** What V8 is told before hubgate starts; `set` ones as hubgate itself could set them in a running process. */
const FLAGS: readonly (readonly [name: string, options: readonly string[]])[] = [
  ['as it is', []],
  ['without Maglev', ['--no-maglev']],
  ['old generation grows by half', ['--heap-growing-percent=50']],
  ['no parallel scavenges, set', [setting('--no-parallel-scavenge')]],
  ['single-threaded collector', ['--single-threaded-gc']],
  ['young generation 2 × 8 MB', ['--max-semi-space-size=8']],
  ['young generation 2 × 32 MB', ['--max-semi-space-size=32']],
];

function setting(flag: string): string {
  const program = `import { setFlagsFromString } from 'node:v8'; setFlagsFromString('${flag}');`;
  return `--import=data:text/javascript,${encodeURIComponent(program)}`;
}

/** `flags`: a proxied request with each of the flags of V8 that might pay, in turns, on one core and on all. */
export async function flags(context: BenchContext): Promise<void> {
  const starts = FLAGS.map(
    ([name, nodeOptions]): StartGateway =>
      async (one, front) => ({
        ...(await startHubgate(one, { ...front, nodeOptions })),
        name,
      }),
  );
  for (const tls of [false, true]) {
    for (const [where, cpus] of [
      ['one core', '0'],
      ['all cores', undefined],
    ] as const) {
      const work = `proxied 1 KiB, ${tls ? 'TLS' : 'plain'}, ${where}`;
      const front = { tls, cores: 1, ...(cpus === undefined ? {} : { cpus }) };
      await together(context, front, starts, async (gateways) => {
        const load = cpus === undefined ? undefined : '1';
        for (const gateway of gateways) await warmUp(gateway, { cpus: load });
        await inRounds(context, gateways, async (gateway) => {
          const before = cpuOf(gateway.pid);
          const wrk = await wrkRequests(gateway, CONNECTIONS, context.amount(ROUND_MS), load);
          return [
            cpuSample(work, cpuOf(gateway.pid) - before, wrk.answers),
            { work: `${work}: p99`, unit: 'ms', value: wrk.p99Ms },
            { work: `${work}: rate`, unit: '/s', value: wrk.perSecond },
            { work: `${work}: resident`, unit: 'MB', value: residentOf(gateway.pid) / 1024 },
          ];
        });
      });
    }
  }
}

/** What `wrk` finds in the first second after a pause, and in the time that follows. */
export async function wrkRound(
  context: BenchContext,
  gateway: BenchGateway,
  work: string,
  path?: string,
): Promise<Sample[]> {
  const samples: Sample[] = [];
  for (const [name, ms] of [
    [`${work}, first second after a pause`, AFTER_PAUSE_MS],
    [work, ROUND_MS],
  ] as const) {
    const before = cpuOf(gateway.pid);
    const wrk = await wrkRequests(gateway, CONNECTIONS, context.amount(ms), undefined, path);
    samples.push(cpuSample(name, cpuOf(gateway.pid) - before, wrk.answers));
    samples.push({ work: `${name}: p99`, unit: 'ms', value: wrk.p99Ms });
  }
  return samples;
}

async function requestRound(
  context: BenchContext,
  gateway: BenchGateway,
  work: string,
): Promise<Sample[]> {
  const samples = await wrkRound(context, gateway, work);
  // The others are there for the ratio alone, which one generator shows.
  if (!/^hubgate$|current/.test(gateway.name)) return samples;
  const beforeOwn = cpuOf(gateway.pid);
  const own = await ownRequests(gateway, CONNECTIONS, context.amount(ROUND_MS));
  const spentOwn = cpuOf(gateway.pid) - beforeOwn;
  const p99 = percentile(own.delaysUs, 0.99) / 1000;
  return [
    ...samples,
    cpuSample(`${work}, own generator`, spentOwn, own.answers),
    { work: `${work}, own generator: p99`, unit: 'ms', value: p99 },
  ];
}

/** The first ten seconds of a process, and ten after two minutes of load; Caddy before and after shows what the machine did. */
export async function twoMinutes(context: BenchContext): Promise<void> {
  const windowMs = context.amount(WINDOW_MS);
  const window = async (gateway: BenchGateway): Promise<number> => {
    const before = cpuOf(gateway.pid);
    const { answers } = await wrkRequests(gateway, CONNECTIONS, windowMs);
    return (cpuOf(gateway.pid) - before) / answers;
  };
  for (const tls of [true, false]) {
    const work = `proxied, ${tls ? 'TLS' : 'plain'}`;
    const starts = [startHubgate, startCurrentCaddy];
    await together(context, { tls, cores: null }, starts, async ([gateway, peer]) => {
      if (gateway === undefined) return;
      if (peer !== undefined) {
        await wrkRequests(peer, CONNECTIONS, windowMs);
        context.note(`${work}: first ten seconds`, peer.name, 'µs of CPU', await window(peer));
      }
      const spent: number[] = [];
      for (let i = 0; i < WINDOWS; i += 1) {
        spent.push(await window(gateway));
        if (i + 1 !== WINDOWS_OF_A_MINUTE) continue;
        const held = residentOf(gateway.pid) / 1024;
        context.note(`${work}: resident after a minute`, gateway.name, 'MB', held);
      }
      const [first = Number.NaN, last = Number.NaN] = [spent[0], spent.at(-1)];
      context.note(`${work}: first ten seconds`, gateway.name, 'µs of CPU', first);
      context.note(`${work}: least of thirteen`, gateway.name, 'µs of CPU', Math.min(...spent));
      context.note(`${work}: after two minutes`, gateway.name, 'µs of CPU', last);
      if (peer !== undefined) {
        context.note(`${work}: after two minutes`, peer.name, 'µs of CPU', await window(peer));
      }
      context.note(`${work}: after two minutes / first`, gateway.name, '×', last / first);
    });
  }
}

/** A response of 200 MB. */
export async function downloads(context: BenchContext): Promise<void> {
  for (const tls of [false, true]) {
    const ways = tls ? (['TLS', 'HTTP/2'] as const) : (['plain'] as const);
    const starts = ALL.filter((start) => start !== startFloor && start !== startSocketsFloor);
    await together(context, { tls, cores: 1 }, starts, async (gateways) => {
      for (const way of ways) {
        for (const gateway of gateways)
          await fetchLarge(gateway, way === 'HTTP/2', WARM_UP_DOWNLOADS);
        await inRounds(context, gateways, async (gateway) => {
          const spent = await cpuDuring(gateway, () =>
            fetchLarge(gateway, way === 'HTTP/2', DOWNLOADS),
          );
          const value = spent / 1000 / (DOWNLOADS * LARGE_MB);
          return [{ work: `download of 200 MB, ${way}`, unit: 'ms of CPU per MB', value }];
        });
      }
    });
  }
}

/** What a request leaves in V8's heap. */
export function garbage(context: BenchContext): Promise<void> {
  const front = { tls: false, cores: 1, nodeOptions: GARBAGE_OPTIONS };
  return together(
    context,
    front,
    [startHubgate, startFloor, startSocketsFloor],
    async (gateways) => {
      for (const gateway of gateways) await warmUp(gateway);
      await inRounds(context, gateways, async (gateway) => {
        await gateway.ask('start');
        const { answers } = await wrkRequests(gateway, GARBAGE_CONNECTIONS, GARBAGE_MS);
        const value = (await gateway.ask('stop')) / 1024 / answers;
        return [{ work: 'garbage of a proxied request', unit: 'KB', value }];
      });
    },
  );
}

/**
 * Requests per second of as many processes or threads as a machine of 1, 2, 4 and 8 cores gets. On one core the load
 * has another; on two they share. For 4 and 8, which the machine does not have, the processes or threads
 * run on what there is, and the model is: cores divided by the CPU of a request.
 */
export async function cores(context: BenchContext): Promise<void> {
  for (const count of [1, 2, 4, 8]) {
    // On two cores hubgate runs one process if nobody says otherwise.
    const workers = count === 2 ? null : count;
    const work = `${count} core${count === 1 ? '' : 's'}`;
    const front = { tls: false, cores: workers, cpus: count === 1 ? '0' : '0-1' };
    await together(context, front, [startHubgate, startCurrentCaddy], async (gateways) => {
      const load = count === 1 ? '1' : '0-1';
      // Each process compiles for itself.
      for (const gateway of gateways) {
        await warmUp(gateway, { cpus: load, processes: workers ?? 1 });
      }
      await inRounds(context, gateways, async (gateway) => {
        const durationMs = context.amount(ROUND_MS);
        const before = cpuOf(gateway.pid);
        const wrk = await wrkRequests(gateway, CONNECTIONS, durationMs, load);
        const each = (cpuOf(gateway.pid) - before) / wrk.answers;
        const modelled = (count * 1_000_000) / each;
        return [
          { work: `requests, ${work}, CPU`, unit: 'µs', value: each },
          {
            work: `requests, ${work}`,
            unit: count > 2 ? '/s by the model' : '/s',
            value: count > 2 ? modelled : wrk.perSecond,
          },
        ];
      });
    });
  }
}

async function warmUp(
  gateway: BenchGateway,
  { cpus, processes = 1 }: { readonly cpus?: string | undefined; readonly processes?: number } = {},
): Promise<void> {
  const until = performance.now() + MAX_WARM_UP_MS;
  let answers = 0;
  while (answers < WARM_UP_REQUESTS * processes && performance.now() < until) {
    answers += (await wrkRequests(gateway, CONNECTIONS, WARM_UP_STEP_MS, cpus)).answers;
  }
}

export function cpuSample(work: string, spentUs: number, requests: number): Sample {
  return { work, unit: 'µs of CPU', value: spentUs / requests };
}

export async function cpuDuring(gateway: BenchGateway, work: () => Promise<void>): Promise<number> {
  const before = cpuOf(gateway.pid);
  await work();
  return cpuOf(gateway.pid) - before;
}

/** Runs gateways at the same time in front of one app; only the one that is measured has work. */
export async function together(
  context: BenchContext,
  front: Omit<Front, 'appPort'>,
  starts: readonly StartGateway[],
  measure: (gateways: readonly BenchGateway[]) => Promise<void>,
): Promise<void> {
  const app = await startApp(front.cpus === '0' ? '1' : undefined);
  const gateways: BenchGateway[] = [];
  try {
    for (const start of starts) {
      const gateway = await start(context, { ...front, appPort: app.port });
      if (gateway !== null) gateways.push(gateway);
    }
    await measure(gateways);
  } finally {
    for (const gateway of gateways) await gateway.stop();
    await app.stop();
  }
}

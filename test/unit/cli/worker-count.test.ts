import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Machine, thisMachine, workerCount } from '../../../src/cli/workers/worker-count.ts';
import { parseHubfile } from '../../../src/index.ts';

const GIB = 1024 ** 3;
const HUB = `hub {
		issuer https://issuer.example.com {
			publisher {
				jwt 0123456789abcdef0123456789abcdef
			}
		}
		anonymous
		TRANSPORT
	}`;

describe('the number of workers', () => {
  for (const { processors, gib, count } of [
    { processors: 1, gib: 64, count: 1 },
    { processors: 2, gib: 64, count: 1 },
    { processors: 3, gib: 64, count: 1 },
    { processors: 4, gib: 64, count: 4 },
    { processors: 6, gib: 64, count: 6 },
    { processors: 64, gib: 64, count: 8 },
    { processors: 8, gib: 2, count: 4 },
    { processors: 8, gib: 1, count: 2 },
    { processors: 8, gib: 0.25, count: 1 },
  ]) {
    it(`is ${count} by default on ${processors} processors with ${gib} GiB`, () => {
      assert.equal(counted({ processors, gib }), count);
    });
  }

  it('is the configured one on any machine, and with auto one for each processor', () => {
    assert.equal(counted({ processors: 2, gib: 1 }, '\tworkers 3\n'), 3);
    assert.equal(counted({ processors: 16, gib: 1 }, '\tworkers 1\n'), 1);
    assert.equal(counted({ processors: 16, gib: 1 }, '\tworkers auto\n'), 16);
    assert.equal(counted({ processors: 2, gib: 1 }, '\tworkers auto\n'), 2);
  });

  for (const [name, options, site, why] of [
    ['a history in memory', '', HUB.replace('TRANSPORT', 'transport memory'), /`transport memory`/],
    [
      'a limit of connections of a listener',
      '\tservers {\n\t\tmax_connections 10\n\t}\n',
      '',
      /limit/,
    ],
    [
      'a limit of connections of a hub',
      '',
      HUB.replace('TRANSPORT', 'max_connections_per_client 10'),
      /limit/,
    ],
    [
      'a limit of connections to an upstream, also inside of other directives',
      '',
      'handle_path /a/* {\n\t\treverse_proxy 127.0.0.1:1 {\n\t\t\ttransport http {\n\t\t\t\tmax_conns_per_host 3\n\t\t\t}\n\t\t}\n\t}',
      /max_conns_per_host/,
    ],
  ] as const) {
    it(`is one by default with ${name}`, () => {
      const chosen = choose({ processors: 8, gib: 16 }, options, site);
      assert.equal(chosen.count, 1);
      assert.match(chosen.why, why);
    });
  }

  it('is several by default with a hub whose history workers share', () => {
    for (const transport of ['', 'transport lmdb']) {
      const chosen = choose({ processors: 4, gib: 16 }, '', HUB.replace('TRANSPORT', transport));
      assert.equal(chosen.count, 4, transport);
    }
  });

  it('depends on HUBGATE_PROCESSORS instead of the machine, unless it is not a positive number', () => {
    const { processors, memoryBytes } = thisMachine({});
    assert.ok(processors > 0 && memoryBytes > 0 && Number.isFinite(memoryBytes));
    assert.equal(thisMachine({ HUBGATE_PROCESSORS: '12' }).processors, 12);
    for (const text of ['', '0', '-1', '1.5', 'x']) {
      assert.equal(thisMachine({ HUBGATE_PROCESSORS: text }).processors, processors, text);
    }
  });
});

function counted(machine: { processors: number; gib: number }, options = ''): number {
  return choose(machine, options, 'respond ok').count;
}

function choose(
  { processors, gib }: { processors: number; gib: number },
  options: string,
  site: string,
) {
  const machine: Machine = { processors, memoryBytes: gib * GIB };
  const config = parseHubfile(`{\n${options}}\nhttp://localhost:1 {\n\t${site}\n}\n`, { env: {} });
  return workerCount(config, machine);
}

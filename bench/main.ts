// `npm run bench [names] [--quick] [--peer-hub URL]… [--node PATH] [--rounds N] [--json FILE]`: measures
// the built program beside its peers, all in one run. docs/performance.md tells the method.
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchContext, type Figure, rounded } from './context.ts';
import { cache } from './cache-work.ts';
import { download, proxy, throughput } from './gateway-work.ts';
import { flags } from './goals-proxy.ts';
import { goals } from './goals.ts';
import { burst, fanout, memory, publish, replay, subscribe } from './hub-work.ts';
import { match } from './match.ts';
import { nodes } from './nodes.ts';
import { reload, start } from './start-work.ts';
import { transfer } from './transfer-work.ts';

const WORKS: Readonly<Record<string, (context: BenchContext) => Promise<void>>> = {
  fanout,
  burst,
  subscribe,
  publish,
  match,
  proxy,
  cache,
  download,
  transfer,
  throughput,
  replay,
  memory,
  nodes,
  start,
  reload,
  goals,
  flags,
};
/** Not for a run of everything. */
const ON_REQUEST: readonly string[] = ['goals', 'flags'];

const USAGE = `npm run bench -- [names] [--quick] [--rounds N] [--parts a,b] [--node PATH] [--peer-hub URL]… [--json FILE]
names: ${Object.keys(WORKS).join(', ')}
docs/performance.md explains them.`;

const { values, positionals } = readArguments();
if (values.help) {
  console.log(USAGE);
  process.exit();
}
const unknown = positionals.filter((name) => !(name in WORKS));
if (unknown.length > 0) misused(`There is no ${unknown.join(', ')}`);

const context = new BenchContext({
  peerHubs: values['peer-hub'],
  quick: values.quick,
  rounds: Number(values.rounds ?? (values.quick ? 3 : 5)),
  parts: values.parts?.split(',') ?? [],
  node: values.node,
});
try {
  for (const [name, work] of Object.entries(WORKS)) {
    if (positionals.length > 0 ? !positionals.includes(name) : ON_REQUEST.includes(name)) continue;
    console.error(`— ${name}`);
    await work(context);
  }
} finally {
  context.close();
  // What was measured before a failure counts as well.
  console.log(header(context));
  console.log(table(context.figures));
  if (values.json !== undefined) {
    const { nodeVersion: node, rounds, figures } = context;
    writeFileSync(values.json, JSON.stringify({ node, rounds, figures }, null, 2));
  }
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        help: { type: 'boolean', short: 'h', default: false },
        quick: { type: 'boolean', default: false },
        json: { type: 'string' },
        node: { type: 'string', default: process.execPath },
        rounds: { type: 'string' },
        parts: { type: 'string' },
        'peer-hub': { type: 'string', multiple: true, default: [] },
      },
    });
  } catch (error) {
    return misused(error instanceof Error ? error.message : String(error));
  }
}

function misused(reason: string): never {
  console.error(`${reason}\n${USAGE}`);
  process.exit(64);
}

/** The machine, and the Node that runs the gateway; the load may come from another. */
function header({ nodeVersion }: BenchContext): string {
  const model = cpus()[0]?.model ?? 'unknown';
  return `${model}, ${cpus().length} cores, gateway on Node ${nodeVersion}, load from Node ${process.version}\n`;
}

/** Work by program, with hubgate's ratio to each peer. */
function table(figures: readonly Figure[]): string {
  const programs = [...new Set(figures.map(({ program }) => program))];
  const works = [...new Set(figures.map(({ work, unit }) => `${work} (${unit})`))];
  const figureOf = (work: string, program: string): Figure | undefined =>
    figures.find((one) => `${one.work} (${one.unit})` === work && one.program === program);
  const rows = works.map((work) => {
    const own = figureOf(work, 'hubgate')?.value;
    const cells = programs.map((program) => {
      const figure = figureOf(work, program);
      if (figure === undefined) return '–';
      const { value, spread } = figure;
      const range =
        spread === undefined ? '' : ` [${rounded(spread.least)}–${rounded(spread.most)}]`;
      const ratio =
        own === undefined || program === 'hubgate' ? '' : ` (× ${rounded(own / value)})`;
      return `${rounded(value)}${range}${ratio}`;
    });
    return `| ${[work, ...cells].join(' | ')} |`;
  });
  const head = `| ${['work', ...programs].join(' | ')} |\n|${'---|'.repeat(programs.length + 1)}`;
  return `${head}\n${rows.join('\n')}\n\n(× n): hubgate's figure divided by the peer's; [a–b]: the least and the most of the rounds.`;
}

import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';
import { type BenchContext, percentile } from './context.ts';
import { freePort } from '../test/support/free-port.ts';
import { cli, cpuOf, residentOf, startServer } from './processes.ts';

/** `start`: commands, and `run` until its first answer. */
export async function start(context: BenchContext): Promise<void> {
  const rounds = context.amount(10);
  const command = (name: string, args: readonly string[]): void => {
    const spent: number[] = [];
    for (let i = 0; i < rounds; i += 1) spent.push(cpuOfCommand(context.node, args));
    context.note(`command: ${name}`, 'hubgate', 'ms of CPU', median(spent));
  };
  command('node -e 0', ['-e', '0']);
  command('hubgate version', [cli, 'version']);
  const times: number[] = [];
  for (let i = 0; i < rounds; i += 1) {
    const { file, port } = await writeSites(context, 1);
    const began = performance.now();
    const program = await startServer(context.node, [cli, 'run', '--config', file], port);
    await answered(port, 'first');
    times.push(performance.now() - began);
    if (i === rounds - 1) {
      context.note('first answer: CPU', 'hubgate', 'ms', cpuOf(program.pid) / 1000);
      await after(2000);
      context.note('memory, idle', 'hubgate', 'MB', residentOf(program.pid) / 1024);
    }
    await program.stop();
  }
  context.note('run until the first answer', 'hubgate', 'ms', median(times));
}

/** `reload`: from the saved file to the first answer of the new configuration. */
export async function reload(context: BenchContext): Promise<void> {
  for (const sites of [1, context.amount(1000)]) {
    const { file, port } = await writeSites(context, sites);
    const program = await startServer(context.node, [cli, 'run', '--config', file], port);
    await answered(port, 'first');
    const times: number[] = [];
    const before = cpuOf(program.pid);
    const rounds = context.amount(10);
    for (let i = 0; i < rounds; i += 1) {
      const word = `change-${i}`;
      const text = readFileSync(file, 'utf8').replace(/respond "[^"]*"/, `respond "${word}"`);
      const began = performance.now();
      writeFileSync(file, text);
      await answered(port, word);
      times.push(performance.now() - began);
    }
    const spent = (cpuOf(program.pid) - before) / 1000 / rounds;
    context.note(`reload of ${sites} sites: effective after`, 'hubgate', 'ms', median(times));
    context.note(`reload of ${sites} sites`, 'hubgate', 'ms of CPU', spent);
    await program.stop();
  }
}

async function writeSites(
  context: BenchContext,
  count: number,
): Promise<{ file: string; port: number }> {
  const port = await freePort();
  const directory = context.directory();
  const file = join(directory, 'Hubfile');
  const others = Array.from(
    { length: count - 1 },
    (_, i) => `http://site-${i}.example.com:${port} {\n\trespond "site ${i}"\n}\n`,
  );
  const options = `{\n\tstorage ${directory}\n\tadmin off\n\tworkers 1\n}\n`;
  writeFileSync(
    file,
    `${options}http://localhost:${port} {\n\trespond "first"\n}\n${others.join('')}`,
  );
  return { file, port };
}

async function answered(port: number, word: string): Promise<void> {
  for (;;) {
    const text = await fetch(`http://localhost:${port}/`).then(
      (response) => response.text(),
      () => '',
    );
    if (text === word) return;
    await after(2);
  }
}

/** User and system time of a command, in milliseconds, by the shell's own account of its children. */
function cpuOfCommand(node: string, args: readonly string[]): number {
  const line = '"$0" "$@" >/dev/null; times';
  const { stdout } = spawnSync('sh', ['-c', line, node, ...args], { encoding: 'utf8' });
  const children = stdout.trim().split('\n')[1] ?? '';
  return [...children.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, [, minutes, seconds]) => sum + (Number(minutes) * 60 + Number(seconds)) * 1000,
    0,
  );
}

function median(values: readonly number[]): number {
  return percentile(
    [...values].sort((a, b) => a - b),
    0.5,
  );
}

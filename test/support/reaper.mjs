import { appendFileSync, readdirSync, readFileSync } from 'node:fs';

// Gateways of the tests run as on a machine with two processors, whatever this one has.
process.env.HUBGATE_PROCESSORS ??= '2';

/** Milliseconds that a process with tests may take. The longest takes two minutes and a half on two idle processors. */
const TIME_LIMIT = (process.env.HUBGATE_ROUNDS === 'all' ? 30 : 15) * 60_000;

/*
 * Imported before every test file. It ends one that takes too long and names the tests that were running, which the
 * runner of Node 20 does not. Then no test's own cleanup runs, and what it has started would live on and hold the
 * runner's pipes, so its child processes are killed.
 */
// A process that a test forks inherits this import, and the environment of the runner.
const isTestFile = process.argv[1]?.endsWith('.test.ts') ?? false;
if (isTestFile && process.env.NODE_TEST_CONTEXT !== undefined) {
  const { afterEach, beforeEach } = await import('node:test');
  const running = new Set();
  beforeEach(({ name }) => running.add(name));
  afterEach(({ name }) => running.delete(name));
  setTimeout(() => {
    const message = `${process.argv[1]} took longer than ${TIME_LIMIT / 60_000} minutes in: ${[...running].join('; ')}\n`;
    const summary = process.env.HUBGATE_OVERDUE_TESTS;
    if (summary !== undefined) appendFileSync(summary, message);
    killDescendants();
    process.stderr.write(message, () => process.exit(1));
  }, TIME_LIMIT).unref();
}

// The runner ends a file by SIGTERM when it is itself told to end.
process.once('SIGTERM', () => {
  killDescendants();
  process.exit(1);
});

function killDescendants() {
  for (const pid of descendants(process.pid)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
}

function descendants(of) {
  const children = new Map();
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    const parent = parentOf(name);
    children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const all = [];
  for (let next = [of]; next.length > 0; ) {
    next = next.flatMap((pid) => children.get(pid) ?? []);
    all.push(...next);
  }
  return all;
}

function parentOf(pid) {
  try {
    // The name, in brackets, may hold spaces and brackets.
    return Number(
      readFileSync(`/proc/${pid}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ')[1],
    );
  } catch {
    return 0;
  }
}

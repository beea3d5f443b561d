import { readdirSync, readFileSync } from 'node:fs';

// Gateways of the tests run as on a machine with two processors, whatever this one has.
process.env.HUBGATE_PROCESSORS ??= '2';

/*
 * Imported before every test file. The runner ends one that takes too long by SIGTERM; then no test's
 * own cleanup runs, and what it has started would live on and hold the runner's pipes.
 */
process.once('SIGTERM', () => {
  for (const pid of descendants(process.pid)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
  process.exit(1);
});

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

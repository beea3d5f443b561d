import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  promises,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '../../../src/cli/read-config.ts';
import { FileWatcher } from '../../../src/cli/watch/file-watcher.ts';
import {
  digestOf,
  digestOfNames,
  systemDisk,
  WatchedPath,
} from '../../../src/cli/watch/watched-path.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { root, SOURCE } from '../../support/process.ts';
import { TestClock } from '../../support/test-clock.ts';

interface Watched {
  readonly directory: string;
  readonly warnings: string[];
  /** Changes that were reported so far. */
  count(): number;
  /** Resolves at the next report after this call. */
  change(): Promise<void>;
  path(name: string): string;
  write(name: string, text: string): void;
}

/** Watches files of a new directory, and has seen that the watch works before it returns. */
async function watch(
  test: TestContext,
  files: Readonly<Record<string, string>>,
  options: {
    readonly watched?: (path: (name: string) => string) => readonly string[];
    readonly prepare?: (directory: string) => void;
  } = {},
): Promise<Watched> {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-watch-'));
  const path = (name: string): string => join(directory, name);
  for (const [name, text] of Object.entries(files)) writeFileSync(path(name), text);
  options.prepare?.(directory);
  const probe = path('probe');
  writeFileSync(probe, 'probe');
  let count = 0;
  let wake: (() => void)[] = [];
  const warnings: string[] = [];
  const log: Logger = { ...silentLogger, warn: (message) => void warnings.push(message) };
  const watcher = new FileWatcher({
    clock: systemClock,
    log,
    onChange: async () => {
      count += 1;
      const waiting = wake;
      wake = [];
      for (const one of waiting) one();
    },
  });
  // What a watch uses keeps no process alive.
  const alive = setInterval(() => {}, 1_000);
  test.after(async () => {
    clearInterval(alive);
    await watcher.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const watched = [...(options.watched?.(path) ?? Object.keys(files).map(path)), probe];
  watcher.watch(watched, digestsOf(watched));
  const change = (): Promise<void> => new Promise((resolve) => wake.push(resolve));
  // Not before the watch is established can one write be told from two.
  const ready = change();
  writeFileSync(probe, 'probed');
  await ready;
  count = 0;
  return {
    ...{ directory, warnings, path, change },
    count: () => count,
    write: (name, text) => writeFileSync(path(name), text),
  };
}

/** As whoever reads the configuration knows them. */
function digestsOf(paths: readonly string[]): Map<string, string> {
  return new Map(
    paths.map((path) => {
      if (path.endsWith('/')) return [path, digestOfNames(readdirSync(path))];
      return [path, digestOf(existsSync(path) ? readFileSync(path) : null)];
    }),
  );
}

describe('watching the configuration (hubfile.md §4)', () => {
  it('reports a write in place', async (test) => {
    const { write, change } = await watch(test, { Hubfile: 'one' });
    const changed = change();
    write('Hubfile', 'two');
    await changed;
  });

  it('reports a file that is replaced by renaming, repeatedly', async (test) => {
    const { write, change, path } = await watch(test, { Hubfile: 'one' });
    for (const text of ['two', 'three', 'four']) {
      const changed = change();
      write('.Hubfile.swp', text);
      renameSync(path('.Hubfile.swp'), path('Hubfile'));
      await changed;
    }
  });

  it('reports a file that is deleted and created again', async (test) => {
    const { write, change, path } = await watch(test, { Hubfile: 'one' });
    const changed = change();
    unlinkSync(path('Hubfile'));
    write('Hubfile', 'two');
    await changed;
  });

  it('reports a Kubernetes swap of ..data', async (test) => {
    const version = (directory: string, name: string, text: string): void => {
      mkdirSync(join(directory, name));
      writeFileSync(join(directory, name, 'Hubfile'), text);
    };
    const { change, path, directory } = await watch(
      test,
      {},
      {
        prepare(created) {
          version(created, '..2026_01', 'one');
          symlinkSync('..2026_01', join(created, '..data'));
          symlinkSync(join('..data', 'Hubfile'), join(created, 'Hubfile'));
        },
        watched: (at) => [at('Hubfile')],
      },
    );
    for (const [index, text] of ['two', 'three'].entries()) {
      const changed = change();
      version(directory, `..2026_1${index}`, text);
      symlinkSync(`..2026_1${index}`, path('..data_tmp'));
      renameSync(path('..data_tmp'), path('..data'));
      await changed;
    }
  });

  it('reports a new file in a directory from which files are imported', async (test) => {
    const { change, directory, warnings } = await watch(
      test,
      { Hubfile: 'import sites/*' },
      {
        prepare: (created) => mkdirSync(join(created, 'sites')),
        watched: (at) => [at('Hubfile'), `${at('sites')}/`],
      },
    );
    const add = async (name: string): Promise<void> => {
      const changed = change();
      writeFileSync(join(directory, 'sites', name), 'x');
      await changed;
    };
    await add('new');
    // From then on, a change that the system has not reported is found too, with a warning.
    await delay(2_100);
    await add('newer');
    assert.deepEqual(warnings, []);
  });

  it('reports a file that was missing at the start', async (test) => {
    const { change, write } = await watch(
      test,
      { Hubfile: 'import later' },
      { watched: (at) => [at('Hubfile'), at('later')] },
    );
    const changed = change();
    write('later', 'x');
    await changed;
  });

  it('knows what the configuration was read from, also a pattern in a directory that is missing', async (test) => {
    const directory = mkdtempSync(join(tmpdir(), 'hubgate-watch-'));
    test.after(() => rmSync(directory, { recursive: true, force: true }));
    const config = join(directory, 'Hubfile');
    mkdirSync(join(directory, 'empty'));
    writeFileSync(
      config,
      'import empty/*\nimport missing/*\nimport missing/*/site\nimport Hubfile/*\n',
    );
    const seen = new Map<string, string>();
    readConfig({ config }, {}, (path, digest) => seen.set(path, digest));
    assert.equal(seen.size, 4);
    for (const [path, digest] of seen) {
      const watched = new WatchedPath(path);
      watched.know(digest);
      await watched.look(systemDisk, systemClock);
      assert.equal(watched.differs, false, path);
    }
  });

  it('reports several writes within 100 ms as one change', async (test) => {
    const { change, write, count } = await watch(test, { Hubfile: 'one', part: 'one' });
    let changed = change();
    for (let i = 0; i < 20; i += 1) {
      write('Hubfile', `${i}`);
      write('part', `${i}`);
    }
    await changed;
    changed = change();
    // Had the writes before been told as two changes, the second would come before this one.
    write('part', 'the last');
    await changed;
    assert.equal(count(), 2);
  });

  it('compares contents if the file system does not report changes, and logs this once', async (test) => {
    const { change, directory, warnings } = await watch(
      test,
      {},
      {
        prepare(created) {
          // As with a file that is mounted alone: its directory sees nothing of its changes.
          mkdirSync(join(created, 'elsewhere'));
          writeFileSync(join(created, 'elsewhere', 'Hubfile'), 'one');
          symlinkSync(join('elsewhere', 'Hubfile'), join(created, 'Hubfile'));
        },
        watched: (at) => [at('Hubfile')],
      },
    );
    assert.deepEqual(warnings, []);
    let version = 1;
    const edit = async (): Promise<void> => {
      const changed = change();
      writeFileSync(join(directory, 'elsewhere', 'Hubfile'), `version ${(version += 1)}`);
      await changed;
    };
    // Changes while the watch is still being established say nothing about the file system.
    while (warnings.length === 0) await edit();
    await edit();
    assert.equal(warnings.length, 1);
    assert.match(warnings.join(), /does not report changes/);
  });

  it('does not read the directory for each line of a log beside the Hubfile, and still reports a change', async (test) => {
    const { change, write, path, warnings } = await watch(test, { Hubfile: 'one' });
    const { mock } = test.mock.method(promises, 'readdir');
    syncBuiltinESMExports();
    test.after(() => {
      mock.restore();
      syncBuiltinESMExports();
    });
    const log = async (lines: number): Promise<number> => {
      const before = mock.callCount();
      for (let line = 0; line < lines; line += 1) {
        appendFileSync(path('access.log'), 'GET /\n');
        await setImmediate();
      }
      return mock.callCount() - before;
    };
    assert.ok((await log(10)) > 0, 'chokidar reads it through the function that is counted');
    // The system may combine several lines into one event.
    await log(5_000);
    await delay(50);
    assert.equal(await log(500), 0);
    const changed = change();
    write('Hubfile', 'two');
    await changed;
    assert.deepEqual(warnings, []);
  });

  it('reports neither a touch nor changes to unrelated files', async (test) => {
    const { change, write, count, path, warnings } = await watch(test, {
      Hubfile: 'one',
      part: 'one',
    });
    utimesSync(path('Hubfile'), new Date(), new Date());
    write('Hubfile', 'one');
    write('unrelated', 'x');
    const changed = change();
    write('part', 'two');
    await changed;
    assert.equal(count(), 1);
    assert.deepEqual(warnings, []);
  });
});

describe('a watcher that is closed', () => {
  it('is not started again by a reload that ends later, which would keep the process alive', async () => {
    const program = `
      import { FileWatcher } from './src/cli/watch/file-watcher.ts';
      import { systemClock } from './src/kernel/clock.ts';
      import { silentLogger } from './src/kernel/log.ts';
      const watcher = new FileWatcher({
        clock: systemClock, log: silentLogger, onChange: async () => {},
      });
      watcher.watch(['package.json']);
      await watcher.close();
      watcher.watch(['README.md']);
    `;
    const args = [...SOURCE, '--input-type=module'];
    const child = spawn(process.execPath, [...args, '-e', program], { cwd: root });
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
  });
});

describe('a watched path that changes between a load and its report', () => {
  it('differs from what the load has read, although nothing on the disk has changed since', async (test) => {
    const directory = mkdtempSync(join(tmpdir(), 'hubgate-watch-'));
    test.after(() => rmSync(directory, { recursive: true }));
    const file = join(directory, 'Hubfile');
    const clock = new TestClock();
    const path = new WatchedPath(file);
    writeFileSync(file, 'new');
    for (const passed of [0, 3_000, 3_000]) {
      clock.advance(passed);
      await path.look(systemDisk, clock);
    }
    path.know(digestOf(Buffer.from('old')));
    await path.look(systemDisk, clock);
    assert.equal(path.differs, true);
  });
});

describe('a watched path that cannot be read for a passing reason', () => {
  for (const call of ['stat', 'readFile'] as const) {
    it(`is neither absent nor settled (${call})`, async (test) => {
      const directory = mkdtempSync(join(tmpdir(), 'hubgate-watch-'));
      test.after(() => rmSync(directory, { recursive: true }));
      const file = join(directory, 'Hubfile');
      writeFileSync(file, 'one');
      utimesSync(file, 1, 1);
      const path = new WatchedPath(file);
      await path.look(systemDisk, systemClock);
      assert.equal(path.differs, false);
      const full = (): never => {
        throw Object.assign(new Error('too many open files'), { code: 'EMFILE' });
      };
      writeFileSync(file, 'two');
      utimesSync(file, 2, 2);
      await path.look({ ...systemDisk, [call]: async () => full() }, systemClock);
      assert.equal(path.differs, false, 'nothing is known of it');
      await path.look(systemDisk, systemClock);
      assert.equal(path.differs, true);
    });
  }
});

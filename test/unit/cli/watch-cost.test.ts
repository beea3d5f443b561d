import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { FileWatcher, type WatchOptions } from '../../../src/cli/watch/file-watcher.ts';
import { digestOf, type Stats, type systemDisk } from '../../../src/cli/watch/watched-path.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { TestClock } from '../../support/test-clock.ts';

/** Longer than any round takes to begin. */
const ROUND_MS = 11_000;

describe('the cost of watching (hubfile.md §4)', () => {
  it('reads only what has changed, whether or not the system reports changes', async (test) => {
    const { disk, pass, told } = start(test, pathsOf('/etc/hub', 100));
    await pass(ROUND_MS);
    for (const tells of [true, false]) {
      disk.forget();
      told.length = 0;
      disk.write('/etc/hub/7', `new, ${tells}`, tells);
      await pass(ROUND_MS);
      assert.deepEqual(told, [[]]);
      assert.deepEqual([...new Set(disk.reads)], ['/etc/hub/7']);
      assert.ok(disk.reads.length <= 6, `${disk.reads.length} while its date is young`);
    }
  });

  it('does not assume that a file system reports no changes if it reported one during a full check', async (test) => {
    const { disk, pass, told, log } = start(test, pathsOf('/etc/hub', 10));
    await pass(ROUND_MS);
    told.length = 0;
    const release = disk.hang('/etc/hub/0');
    await pass(2_100);
    assert.equal(disk.waiting, 1, 'a round has begun');
    disk.write('/etc/hub/7', 'new', true);
    await pass(200);
    release();
    await pass(2_100);
    assert.deepEqual(told, [[]]);
    assert.deepEqual(log.lines, []);
  });

  it('distinguishes two contents with the same date and size', async (test) => {
    const { disk, pass, told } = start(test, ['/etc/hub/a']);
    await pass(ROUND_MS);
    told.length = 0;
    disk.write('/etc/hub/a', 'one', true);
    await pass(200);
    disk.write('/etc/hub/a', 'two', false, disk.dateOf('/etc/hub/a'));
    await pass(ROUND_MS);
    assert.deepEqual(told, [[], []]);
  });

  it('reports a file that is written in two steps once, also if the system reports no changes', async (test) => {
    const { disk, pass, told } = start(test, ['/etc/hub/a']);
    await pass(ROUND_MS);
    for (const round of [1, 2]) {
      told.length = 0;
      disk.forget();
      disk.write('/etc/hub/a', `half of ${round}`, false);
      while (disk.reads.length === 0) await pass(100);
      disk.write('/etc/hub/a', `all of ${round}`, false);
      await pass(ROUND_MS);
      assert.deepEqual(told, [[]]);
    }
  });

  it('reports a file that is written all the time', async (test) => {
    const { disk, pass, told } = start(test, ['/etc/hub/a']);
    await pass(ROUND_MS);
    told.length = 0;
    for (let written = 0; written < 24; written += 1) {
      disk.write('/etc/hub/a', `${written}`, true);
      await pass(50);
    }
    assert.equal(told.length, 1);
  });

  it('reports at once what changes at the end of a full check', async (test) => {
    const { disk, pass, told } = start(test, pathsOf('/etc/hub', 10));
    await pass(ROUND_MS);
    told.length = 0;
    const release = disk.hang('/etc/hub/9');
    while (disk.waiting === 0) await pass(100);
    disk.write('/etc/hub/0', 'new', true);
    release();
    // The check ends before the event counts as quiet.
    await pass(10);
    assert.deepEqual(told, []);
    await pass(200);
    assert.deepEqual(told, [[]]);
  });

  it('continues when a drive hangs, logs it, and reports changes on the drive again when it recovers', async (test) => {
    const { disk, pass, told, log } = start(test, ['/net/a', '/net/b', '/etc/hub/a']);
    await pass(ROUND_MS);
    const release = disk.hang('/net/');
    await pass(ROUND_MS);
    assert.deepEqual(log.of('A watched file cannot be read in time').length, 1);
    assert.equal(disk.waiting, 1, 'one thread for a drive');
    disk.write('/etc/hub/a', 'new', false);
    await pass(ROUND_MS);
    assert.deepEqual(told, [['/net/a']]);
    release();
    await pass(ROUND_MS);
    assert.deepEqual(told, [['/net/a'], []]);
    disk.write('/net/b', 'new', false);
    await pass(ROUND_MS);
    assert.equal(told.length, 3);
  });

  it('continues when a drive that is not known yet hangs', async (test) => {
    const { disk, pass, told, log } = start(test, ['/net/a', '/net/b', '/etc/hub/a']);
    disk.hang('/net/', 'readFile');
    await pass(ROUND_MS);
    assert.equal(disk.waiting, 1, 'one thread for a drive');
    disk.write('/etc/hub/a', 'new', false);
    await pass(ROUND_MS);
    assert.deepEqual(told, [['/net/a']]);
    assert.deepEqual(log.of('A watched file cannot be read in time').length, 1);
  });
});

function pathsOf(directory: string, count: number): string[] {
  return Array.from({ length: count }, (_, number) => `${directory}/${number}`);
}

/** A watch on a disk in memory, and a clock that is turned. */
function start(test: TestContext, files: readonly string[]) {
  const clock = new TestClock();
  const disk = new MemoryDisk(clock);
  for (const file of files) disk.write(file, 'old', false, clock.now() - 60_000);
  const told: (readonly string[])[] = [];
  const log = new RecordedLog();
  const onChange = async (unanswered: readonly string[]) => void told.push(unanswered);
  const watcher = new FileWatcher({
    ...{ clock, log, disk, onChange },
    openEvents: (wanted, onEvent) => disk.openEvents(wanted, onEvent),
  });
  test.after(() => watcher.close());
  const old = digestOf(Buffer.from('old'));
  watcher.watch(files, new Map(files.map((file) => [file, old])));
  return {
    ...{ disk, told, log },
    /** Turns the clock, and lets the disk answer as time goes by. */
    async pass(ms: number): Promise<void> {
      for (let left = ms; left > 0; left -= 100) {
        clock.advance(Math.min(left, 100));
        do await setImmediate();
        while (disk.busy);
      }
    },
  };
}

interface MemoryFile {
  readonly content: string;
  readonly dateMs: number;
}

type Disk = typeof systemDisk;
type Events = ReturnType<NonNullable<WatchOptions['openEvents']>>;

class MemoryDisk implements Disk {
  reads: string[] = [];
  #owed = 0;
  #hanging = 0;
  readonly #clock: TestClock;
  readonly #files = new Map<string, MemoryFile>();
  readonly #watches = new Map<string, (path: string) => void>();
  /** By what a request to the disk begins with, such as `readFile /net/`. */
  readonly #hangs = new Map<string, Promise<void>>();

  constructor(clock: TestClock) {
    this.#clock = clock;
  }

  get waiting(): number {
    return this.#hanging;
  }

  get busy(): boolean {
    return this.#owed > this.#hanging;
  }

  forget(): void {
    this.reads = [];
  }

  dateOf(path: string): number {
    return this.#files.get(path)?.dateMs ?? 0;
  }

  write(path: string, content: string, tells: boolean, dateMs = this.#clock.now()): void {
    this.#files.set(path, { content, dateMs });
    if (tells) this.#watches.get(path)?.(path);
  }

  /** What is asked for below `path` is answered only after the returned function was called. */
  hang(path: string, call: 'stat' | 'readFile' = 'stat'): () => void {
    let release = () => {};
    const begin = `${call} ${path}`;
    this.#hangs.set(begin, new Promise((resolve) => (release = resolve)));
    return () => {
      this.#hangs.delete(begin);
      release();
    };
  }

  async stat(path: string): Promise<Stats> {
    await this.#answer(`stat ${path}`);
    const { content, dateMs } = this.#files.get(path) ?? { content: '', dateMs: 0 };
    const date = BigInt(dateMs);
    const dev = BigInt(path.codePointAt(1) ?? 0) * 10n + BigInt(path.codePointAt(2) ?? 0);
    const size = BigInt(content.length);
    const mode = BigInt(constants.S_IFREG);
    return { mode, dev, ino: 1n, size, mtimeNs: date, ctimeNs: date };
  }

  async readFile(path: string): Promise<Uint8Array> {
    await this.#answer(`readFile ${path}`);
    this.reads.push(path);
    return Buffer.from(this.#files.get(path)?.content ?? '');
  }

  async readdir(): Promise<readonly string[]> {
    return [];
  }

  /** The events of these files. */
  openEvents(wanted: ReadonlyMap<string, unknown>, onEvent: (path: string) => void): Events {
    for (const path of wanted.keys()) this.#watches.set(path, onEvent);
    return { closed: false, close: async () => this.#watches.clear() };
  }

  async #answer(request: string): Promise<void> {
    this.#owed += 1;
    const hang = [...this.#hangs].find(([begin]) => request.startsWith(begin))?.[1];
    if (hang !== undefined) {
      this.#hanging += 1;
      await hang;
      this.#hanging -= 1;
    }
    await Promise.resolve();
    this.#owed -= 1;
  }
}

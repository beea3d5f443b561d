import assert from 'node:assert/strict';
import {
  copyFile,
  mkdir,
  open as openFile,
  readFile,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it, type TestContext } from 'node:test';
import { open } from 'lmdb';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { openLmdbHistory } from '../../../src/transports/lmdb/lmdb-history.ts';
import { checkPages } from '../../../src/transports/lmdb/page-check.ts';
import {
  fill,
  historyFile,
  LmdbFile,
  openHistory,
  patchHistory,
  update,
} from '../../support/lmdb-files.ts';
import { root, SOURCE, startProcess, TestProcess } from '../../support/process.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

/** Where lmdb-js keeps what was last known to be on the disk. */
const FLUSHED = 2048 + 24;

const record = { id: 's', type: 'subscription', match: 'topic', match_type: 'exact' } as const;

/** One with branches, lists of values inside and outside of a page, large values and free pages. */
async function fillEverything(path: string): Promise<void> {
  const transport = await openHistory(path, 900);
  await fill(transport, 1_500, (index) => {
    const id = index % 3 === 0 ? 'often' : index % 3 === 1 ? `few-${index % 50}` : `id-${index}`;
    return update(id, 'x'.repeat(index % 40 === 0 ? 9_000 : 200));
  });
  for (let count = 0; count < 60; count += 1) {
    await transport.presence.enter(`urn:s:${count}`, [
      { ...record, subscriber: `urn:s:${count}`, active: true },
    ]);
  }
  // As it is while a gateway runs.
  await copyFile(historyFile(path), join(path, 'running.mdb'));
  await transport.close();
  await copyFile(join(path, 'running.mdb'), historyFile(path));
}

describe('the page check of a history in LMDB', () => {
  describe('for an undamaged history', () => {
    it('reports nothing if it is missing, empty, or has one update', async (test) => {
      const path = await temporaryDirectory(test);
      await checkPages(historyFile(path));
      await writeFile(historyFile(path), '');
      await checkPages(historyFile(path));
      const transport = await openHistory(path);
      await checkPages(historyFile(path));
      await transport.append(update('a'));
      await checkPages(historyFile(path));
      await transport.close();
      await checkPages(historyFile(path));
    });

    it('reports nothing for deep trees, large values, lists of values, evicted updates or presence; nor for a compacted copy', async (test) => {
      const path = await temporaryDirectory(test);
      await fillEverything(path);
      await checkPages(historyFile(path));
      for (let round = 0; round < 3; round += 1) {
        const transport = await openHistory(path, 400 - round * 190);
        await fill(transport, 900, (index) => update(`${round}-${index}`, 'y'.repeat(index * 7)));
        await checkPages(historyFile(path));
        await transport.close();
      }
      const history = await openLmdbHistory(path);
      await history.compact();
      await checkPages(historyFile(path));
      const transport = await openHistory(path, 5);
      await transport.append(update('after'));
      await checkPages(historyFile(path));
      await transport.close();
      await checkPages(historyFile(path));
    });

    it('reports nothing for a list of free pages that is itself large', async (test) => {
      const path = await temporaryDirectory(test);
      const file = historyFile(path);
      const store = open({ path: file, maxDbs: 7 });
      const log = store.openDB<Buffer, number>({ name: 'log', encoding: 'binary' });
      await store.transaction(() => {
        for (let key = 1; key <= 6_000; key += 1) log.putSync(key, Buffer.alloc(2_500, key));
      });
      await store.transaction(() => {
        for (let key = 1; key <= 6_000; key += 1) if (key % 3 !== 0) log.removeSync(key);
      });
      await checkPages(file);
      for (let round = 0; round < 30; round += 1) {
        await log.put(10_000 + round, Buffer.alloc(round * 3_000));
        await checkPages(file);
      }
      await store.close();
      await checkPages(file);
    });

    it('reports nothing if its writer was killed', async (test) => {
      const path = await temporaryDirectory(test);
      for (let round = 0; round < 6; round += 1) {
        const child = new TestProcess([...program('writer'), path, '100']);
        await child.says('\n'.repeat(3 + round * 4));
        await child.end('SIGKILL');
        await checkPages(historyFile(path));
      }
    });

    it('reports nothing if two processes write to it meanwhile', async (test) => {
      const path = await temporaryDirectory(test);
      const writers = [1, 2].map((at) => startProcess(test, [...program('writer'), path, `${at}`]));
      await Promise.all(writers.map((writer) => writer.says('\n\n\n')));
      for (let count = 0; count < 300; count += 1) {
        await checkPages(historyFile(path));
      }
      await Promise.all(writers.map((writer) => writer.end('SIGKILL')));
      await checkPages(historyFile(path));
    });

    it('runs in slices', async (test) => {
      const path = await temporaryDirectory(test);
      const transport = await openHistory(path);
      await fill(transport, 12_000, (index) => update(`id-${index}`, 'x'.repeat(500)), 1_000);
      await transport.close();
      let turns = 0;
      const scheduler = new Scheduler((turn) => {
        turns += 1;
        setImmediate(turn);
      });
      await checkPages(historyFile(path), scheduler);
      const pages = (await stat(historyFile(path))).size / 4096;
      assert.ok(turns >= pages / 1_000, `${turns} turns for ${pages} pages`);
    });
  });

  describe('for a damaged history', () => {
    let base = '';
    before(async (suite) => {
      base = await temporaryDirectory({ after: (end) => void ended.push(end) });
      await fillEverything(base);
      assert.ok(suite);
    });
    const ended: (() => unknown)[] = [];

    const leafOfFree = (file: LmdbFile): number =>
      file.leaf(file.free.root * file.pageBytes, file.free.depth);
    /** A node of the ids whose value has these flags. */
    const nodeWith = (file: LmdbFile, name: string, flags: number): [page: number, at: number] => {
      for (let page = 2; page * file.pageBytes < file.bytes.length; page += 1) {
        const at = page * file.pageBytes;
        if (!reachable(file, name).has(page)) continue;
        for (let index = 0; index < file.nodes(at); index += 1) {
          const node = file.node(at, index);
          if (file.view.getUint16(node + 4, true) === flags) return [at, index];
        }
      }
      throw new Error(`no node with flags ${flags}`);
    };

    const cases: readonly [string, (file: LmdbFile) => void, RegExp][] = [
      ['the signature', (f) => f.u32(24, 1), /is not a history/],
      [
        'the signature of the second meta page',
        (f) => f.u32(4096 + 24, 1),
        /^page 1 .*not a meta page/,
      ],
      ['the version', (f) => f.u16(f.meta + 4, 7), /another version/],
      ['the kind of a meta page', (f) => f.u16(f.meta - 24 + 18, 2), /not a meta page/],
      ['the size of a page', (f) => f.u32(f.meta + 24, 4097), /size of a page is impossible/],
      ['the size of a page on one', (f) => f.u32(f.meta + 24, 8192), /page/],
      ['the kind of the free list', (f) => f.u16(f.meta + 28, 0x500c), /kind of the free list/],
      ['the transaction', (f) => f.u32(f.meta + 128 + 2, 77), /transaction/],
      ['the last page', (f) => f.u32(f.meta + 120, 5), /does not exist/],
      ['the last page, to none', (f) => f.u32(f.meta + 120, 0), /its last page/],
      ['the root of the databases', (f) => f.u32(f.meta + 72 + 40, 0xfffff), /does not exist/],
      [
        'the root of the databases, to a meta page',
        (f) => f.u32(f.meta + 72 + 40, 1),
        /does not exist/,
      ],
      ['the kind of the databases', (f) => f.u16(f.meta + 72 + 4, 4), /list of databases/],
      [
        'the kind of a database',
        (f) => f.u16(f.record('log') + 4, 0x10),
        /kind of the database "log/,
      ],
      ['the depth of a tree', (f) => f.u16(f.record('log') + 6, 1), /is not a leaf/],
      [
        'the depth of a tree, far',
        (f) => f.u16(f.record('log') + 6, 999),
        /depth of a tree is impossible/,
      ],
      ['the number of entries', (f) => f.u32(f.record('log') + 32, 1), /number of entries/],
      [
        'the root of an empty tree',
        (f) => f.bytes.fill(255, f.record('log') + 40, f.record('log') + 48),
        /without pages/,
      ],
      [
        'the root of a tree, to that of another',
        (f) => f.u32(f.record('ids') + 40, f.root('log') / 4096),
        /used twice|order|impossible|not a leaf|not a branch/,
      ],
      ['the number of a page', (f) => f.u32(f.root('log'), 3), /number of another page/],
      [
        'the transaction of a page',
        (f) => f.u32(f.root('log') + 8, 0x7fffffff),
        /transaction that has not been/,
      ],
      ['the kind of a page', (f) => f.u16(f.root('log') + 18, 2), /not a branch/],
      ['the kind of a leaf', (f) => f.u16(f.firstLeaf('log') + 18, 0x22), /not a leaf/],
      ['the lower bound', (f) => f.u16(f.root('log') + 20, 0xfff0), /free room/],
      ['the upper bound', (f) => f.u16(f.root('log') + 22, 0xfff0), /free room/],
      ['an odd bound', (f) => f.u16(f.root('log') + 20, 5), /free room/],
      ['the number of nodes', (f) => f.u16(f.firstLeaf('log') + 20, 4), /gaps/],
      [
        'the number of nodes, to none',
        (f) => {
          f.u16(f.root('log') + 20, 0);
          f.u16(f.root('log') + 22, 4072);
        },
        /fewer nodes/,
      ],
      ['the place of a node', (f) => f.u16(f.firstLeaf('log') + 24, 4090), /outside/],
      [
        'the place of a node, to that of another',
        (f) => f.u16(f.firstLeaf('log') + 24, f.view.getUint16(f.firstLeaf('log') + 26, true)),
        /twice/,
      ],
      ['the size of a key', (f) => f.u16(f.node(f.firstLeaf('log'), 0) + 6, 3000), /key of node 0/],
      [
        'the size of a value',
        (f) => f.u32(f.node(f.firstLeaf('log'), 1), 60_000),
        /reaches beyond/,
      ],
      [
        'the size of a value, a little',
        (f) => f.u32(f.node(f.firstLeaf('log'), 1), 20),
        /gaps|fewer/,
      ],
      [
        'a key',
        (f) => {
          f.bytes[f.node(f.firstLeaf('log'), 1) + 9] = 255;
        },
        /ascending order|another page/,
      ],
      [
        'the child of a branch',
        (f) => f.u32(f.node(f.root('log'), 1), 0x7ffffff),
        /does not exist/,
      ],
      [
        'the child of a branch, to the branch',
        (f) => f.u32(f.node(f.root('log'), 1), f.root('log') / 4096),
        /used twice/,
      ],
      [
        'the child of a branch, to its sibling',
        (f) => f.u32(f.node(f.root('log'), 1), f.view.getUint32(f.node(f.root('log'), 0), true)),
        /used twice/,
      ],
      [
        'two children of a branch',
        (f) => {
          const [a, b] = [f.node(f.root('log'), 1), f.node(f.root('log'), 2)];
          const child = f.view.getUint32(a, true);
          f.u32(a, f.view.getUint32(b, true));
          f.u32(b, child);
        },
        /another page|ascending/,
      ],
      [
        'the kind of a value',
        (f) => f.u16(f.node(f.firstLeaf('log'), 0) + 4, 8),
        /kind of a value|gaps|reaches/,
      ],
      [
        'the page of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.value(at, i), 0xffffff);
        },
        /does not exist/,
      ],
      [
        'the pages of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.value(at, i) + 16, 1);
        },
        /larger than the pages/,
      ],
      [
        'the size of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.node(at, i), 0x7fffffff);
        },
        /larger than the pages/,
      ],
      [
        'the header of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.view.getUint32(f.value(at, i), true) * 4096 + 20, 900);
        },
        /not what its value says/,
      ],
      [
        'the transaction of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.view.getUint32(f.value(at, i), true) * 4096 + 12, 9);
        },
        /transaction that has not been/,
      ],
      [
        'the number of a large value',
        (f) => {
          const [at, i] = nodeWith(f, 'log', 1);
          f.u32(f.view.getUint32(f.value(at, i), true) * 4096, 9);
        },
        /number of another page/,
      ],
      [
        'the kind of a page inside',
        (f) => {
          const [at, i] = nodeWith(f, 'ids', 4);
          f.u16(f.value(at, i) + 18, 2);
        },
        /list of values/,
      ],
      [
        'the bounds of a page inside',
        (f) => {
          const [at, i] = nodeWith(f, 'ids', 4);
          f.u16(f.value(at, i) + 20, 0x7000);
        },
        /list of values/,
      ],
      [
        'a value of a page inside',
        (f) => {
          const [at, i] = nodeWith(f, 'ids', 4);
          const inner = f.value(at, i);
          f.bytes[f.node(inner, 0) + 9] = 255;
        },
        /values of a key/,
      ],
      [
        'the root of a list of values',
        (f) => {
          const [at, i] = nodeWith(f, 'ids', 6);
          f.u32(f.value(at, i) + 40, 0xffffff);
        },
        /does not exist/,
      ],
      [
        'the kind of a list of values',
        (f) => {
          const [at, i] = nodeWith(f, 'ids', 6);
          f.u16(f.value(at, i) + 4, 4);
        },
        /list of values/,
      ],
      [
        'how many pages are free',
        (f) => f.u32(f.value(leafOfFree(f), 0), 60_000),
        /free pages is longer/,
      ],
      [
        'a free page, to one in use',
        (f) => {
          const at = f.value(leafOfFree(f), f.nodes(leafOfFree(f)) - 1);
          for (let i = 1; i <= f.view.getUint32(at, true); i += 1) {
            if (f.view.getInt32(at + i * 8, true) > 0) f.u32(at + i * 8, f.root('log') / 4096);
          }
        },
        /free and in use|does not exist/,
      ],
      [
        'a free page, to a meta page',
        (f) => {
          const at = f.value(leafOfFree(f), f.nodes(leafOfFree(f)) - 1);
          for (let i = 1; i <= f.view.getUint32(at, true); i += 1) {
            if (f.view.getInt32(at + i * 8, true) > 0) f.u32(at + i * 8, 1);
          }
        },
        /does not exist/,
      ],
      [
        'the key of a list of free pages',
        (f) => {
          const node = f.node(leafOfFree(f), 0);
          f.u32(node + 12, 0x7fffffff);
        },
        /ascending|another page/,
      ],
    ];
    for (const [title, change, expected] of cases) {
      it(`prevents opening: ${title}`, async (test) => {
        const path = await copyOf(test, base);
        await patchHistory(path, change);
        await assert.rejects(checkPages(historyFile(path)), {
          code: 'history-damaged',
          message: expected,
        });
        await assert.rejects(openHistory(path), { code: 'history-damaged' });
        await assert.rejects(openLmdbHistory(path), {
          code: 'history-damaged',
          message: new RegExp(`The history in ${path} is not used: .*hubgate history import`),
        });
      });
    }

    it('prevents opening it again if it was damaged while another process has it open, which continues', async (test) => {
      const path = await copyOf(test, base);
      const transport = await openHistory(path);
      test.after(() => transport.close());
      const file = new LmdbFile(await readFile(historyFile(path)));
      const handle = await openFile(historyFile(path), 'r+');
      await handle.write(Buffer.from([1, 2, 3]), 0, 3, file.firstLeaf('log'));
      await handle.close();
      await assert.rejects(openHistory(path), {
        code: 'history-damaged',
        message: /number of another page/,
      });
      assert.equal((await transport.read(0, 5)).length, 5);
      await transport.append(update('more'));
      await assert.rejects(openHistory(path), { code: 'history-damaged' });
    });

    it('prevents opening: its end is missing', async (test) => {
      const path = await copyOf(test, base);
      await truncate(historyFile(path), 3 * 4096);
      await assert.rejects(checkPages(historyFile(path)), {
        message: /behind the end of the file/,
      });
      await truncate(historyFile(path), 4096 + 10);
      await assert.rejects(checkPages(historyFile(path)), { message: /the file ends in it/ });
    });

    it('prevents opening: the system has restarted since, and the data on disk is damaged', async (test) => {
      const path = await copyOf(test, base);
      await patchHistory(path, (file) => {
        const older = file.meta === 24 ? 4096 + 24 : 24;
        file.bytes.copy(file.bytes, FLUSHED + 16, older + 16, older + 144);
        file.u16(FLUSHED + 28, file.view.getUint16(FLUSHED + 28, true) & ~0x1000);
        for (const meta of [24, 4096 + 24, FLUSHED]) file.u32(meta + 136, 1);
        // What came after it need not have reached the disk.
        file.u32(file.meta + 72 + 40, 0xffffff);
      });
      await checkPages(historyFile(path));
      await patchHistory(path, (file) => {
        for (const meta of [24, 4096 + 24, FLUSHED]) file.u32(meta + 72 + 40, 0xffffff);
      });
      await assert.rejects(checkPages(historyFile(path)), { code: 'history-damaged' });
    });

    it('reports a changed bit anywhere unless it is harmless, and the process never crashes', async (test) => {
      const path = await temporaryDirectory(test);
      const child = startProcess(test, [...program('flips'), base, path, '300']);
      assert.equal(await child.exited(), 0, child.output.slice(-1_000));
      const { told, harmless } = JSON.parse(child.output.trim().split('\n').at(-1) ?? '');
      assert.equal(told + harmless, 300);
      assert.ok(told > 100, child.output);
      for (const end of ended) await end();
    });
  });
});

/** All pages of a database, by the way of its branches. */
function reachable(file: LmdbFile, name: string): Set<number> {
  const pages = new Set<number>();
  const go = (page: number): void => {
    pages.add(page);
    const at = page * file.pageBytes;
    if (file.view.getUint16(at + 18, true) !== 1) return;
    for (let index = 0; index < file.nodes(at); index += 1) {
      go(file.view.getUint32(file.node(at, index), true));
    }
  };
  go(file.root(name) / file.pageBytes);
  return pages;
}

async function copyOf(test: TestContext, base: string): Promise<string> {
  const path = await temporaryDirectory(test);
  await mkdir(path, { recursive: true });
  await copyFile(historyFile(base), historyFile(path));
  return path;
}

function program(name: string): string[] {
  const file = join(root, 'test/unit/transports/lmdb-programs', `${name}.ts`);
  return [...SOURCE, file];
}

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, open as openFile, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { describe, it, type TestContext } from 'node:test';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import type { Transport } from '../../src/hub/transport.ts';
import { writeNew } from '../../src/cli/new-file.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { cli, runCommand } from '../support/process.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** What the reference hub kept of 40 updates, in its own format. */
const REFERENCE_HISTORY = new URL('fixtures/reference-history.db.gz', import.meta.url);

const STORES = [
  ['redis', startRedis],
  ['postgres', startPostgres],
] as const;

describe('hubgate history', () => {
  it('exports while the gateway runs, and imports an export of another gateway', async (test) => {
    const { directory, path, hubfile } = await setUp(test);
    const running = await openLog(path);
    test.after(() => running.close());
    const updates = Array.from({ length: 1000 }, (_, index) =>
      update(`u${index}`, `data ${index}`),
    );
    await Promise.all(updates.map((one) => running.append(one)));
    const file = join(directory, 'backup.ndjson');
    const exported = await history(['export', file], hubfile);
    assert.deepEqual([exported.code, exported.stderr], [0, '1000 updates were exported\n']);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    const { at, ...first } = JSON.parse(lines[0] ?? '');
    assert.deepEqual(first, updates[0]);
    assert.ok(Date.parse(at) > Date.now() - 60_000);

    const other = await setUp(test);
    const imported = await history(['import', file], other.hubfile);
    assert.deepEqual([imported.code, imported.stderr], [0, '1000 updates were imported\n']);
    const again = await history(['export'], other.hubfile);
    assert.equal(again.stdout, await readFile(file, 'utf8'), 'times and all');
    const log = await openLog(other.path);
    test.after(() => log.close());
    assert.equal(await log.find('u999'), 1000);
  });

  it('imports data with characters that some programs take for the end of a line', async (test) => {
    const { directory, hubfile } = await setUp(test);
    const file = join(directory, 'lines');
    const given = ['\u2028', '\u2029', '\u0085', '\v\f', ''].map((data, index) =>
      update(`u${index}`, `before ${data} after`),
    );
    await writeFile(file, given.map((one) => `${JSON.stringify(one)}\r\n`).join(''));
    assert.equal((await history(['import', file], hubfile)).code, 0);
    const { stdout } = await history(['export'], hubfile);
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ at: _at, ...rest }) => rest),
      given,
    );
  });

  it('imports nothing twice unless a flag says what to do with existing updates', async (test) => {
    const { directory, hubfile } = await setUp(test);
    const file = join(directory, 'lines');
    const write = (...ids: string[]) =>
      writeFile(file, ids.map((id) => `${JSON.stringify(update(id))}\n`).join(''));
    const ids = async () =>
      [...(await history(['export'], hubfile)).stdout.matchAll(/"id":"(.)"/g)].map(([, id]) => id);
    await write('a', 'b');
    assert.equal((await history(['import', file], hubfile)).code, 0);
    const refused = await history(['import', file], hubfile);
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, /has 2 updates already: pass --skip-existing .* or --append/);
    assert.deepEqual(await ids(), ['a', 'b']);
    await write('a', 'b', 'c');
    const { stderr } = await history(['import', '--skip-existing', file], hubfile);
    assert.equal(stderr, '1 update was imported\n2 were skipped: the history has their ids\n');
    assert.deepEqual(await ids(), ['a', 'b', 'c']);
    assert.equal((await history(['import', '--append', file], hubfile)).code, 0);
    assert.deepEqual(await ids(), ['a', 'b', 'c', 'a', 'b', 'c']);
  });

  for (const [kind, startStore] of STORES) {
    it(`moves a history to ${kind} and back`, async (test) => {
      const store = await startStore(test, test);
      if (store === null) return;
      const { directory } = await setUp(test);
      const hubfile = join(directory, 'Storefile');
      await writeFile(hubfile, hubWith(`transport ${kind} {\n\t\t\turl ${store.url}\n\t\t}`));
      const file = join(directory, 'lines');
      for (const command of ['stats', 'verify', 'export']) {
        const { code, stderr } = await history([command], hubfile);
        assert.equal(code, 1, command);
        assert.match(stderr, /The history \S+ was not found in (?:Redis|PostgreSQL)/);
      }
      const given = ['a', 'b', 'c'].map((id) => update(id, `é\n${id}`));
      // One that the hub made itself, about a subscription.
      given.splice(1, 0, { ...update('event'), private: true, type: 'hub', presence: true });
      await writeFile(file, given.map((one) => `${JSON.stringify(one)}\n`).join(''));
      const imported = await history(['import', file], hubfile);
      const counted = '3 updates and 1 presence event were';
      assert.deepEqual([imported.code, imported.stderr], [0, `${counted} imported\n`]);
      const { stdout, stderr } = await history(['export'], hubfile);
      assert.equal(stderr, `${counted} exported\n`);
      const back = stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
      assert.deepEqual(
        back.map(({ at: _at, ...rest }) => rest),
        given,
      );
      const stats = JSON.parse((await history(['stats', '--json'], hubfile)).stdout);
      const { updates, presence_events: events, position, last_event_id: last } = stats;
      assert.deepEqual([updates, events, position, last], [3, 1, 4, 'c']);
      const verified = await history(['verify'], hubfile);
      assert.equal(verified.code, 0);
      assert.match(verified.stderr, /3 updates and 1 presence event, 0 of them damaged/);
      const compacted = await history(['compact'], hubfile);
      assert.equal(compacted.code, 1);
      assert.match(compacted.stderr, /nothing to compact/);
    });
  }

  it('prints what the owner of a database executes for a gateway that may not create tables', async (test) => {
    const postgres = await startPostgres(test, test, {
      access: ['host all gateway 127.0.0.1/32 scram-sha-256'],
    });
    if (postgres === null) return;
    const { directory } = await setUp(test);
    const hubfile = join(directory, 'Hubfile');
    await postgres.query("CREATE ROLE gateway LOGIN PASSWORD 'secret'");
    const url = `postgres://gateway:secret@127.0.0.1:${postgres.port}/postgres`;
    const block = (schema: string) =>
      `transport postgres {\n\t\t\turl ${url}\n\t\t\tschema ${schema}\n\t\t}`;
    await writeFile(hubfile, hubWith(block('hub_tables')));
    const file = join(directory, 'lines');
    await writeFile(file, `${JSON.stringify(update('a'))}\n`);
    const refused = await history(['import', file], hubfile);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /run hubgate history init/);
    const printed = await history(['init'], hubfile);
    assert.equal(printed.code, 0);
    assert.doesNotMatch(printed.stdout, /secret/);
    await postgres.query(printed.stdout);
    const empty = await history(['stats', '--json'], hubfile);
    assert.equal(empty.code, 0, empty.stderr);
    const { updates, position, last_event_id: last, oldest } = JSON.parse(empty.stdout);
    assert.deepEqual([updates, position, last, oldest], [0, 0, null, null]);
    const verified = await history(['verify'], hubfile);
    assert.equal(verified.code, 0, verified.stderr);
    assert.deepEqual((await history(['import', file], hubfile)).code, 0);
    assert.equal((await history(['verify'], hubfile)).code, 0);
    const [row] = await postgres.query('SELECT id FROM hub_tables.entries');
    assert.deepEqual(row, { id: 'a' });
    const wrongName = block('hub_tables').replace('url', 'stream wrong\n\t\t\turl');
    await writeFile(hubfile, hubWith(wrongName));
    assert.match((await history(['stats'], hubfile)).stderr, /wrong was not found in PostgreSQL/);
    const other = await runCommand(['history', 'init', '--transport', 'postgres', '--role', 'r']);
    assert.match(
      other.stdout,
      /CREATE SCHEMA "hubgate";[^]*GRANT USAGE ON SCHEMA "hubgate" TO "r";/,
    );
    const none = await runCommand(['history', 'init', '--transport', 'memory']);
    assert.deepEqual([none.code, none.stdout], [1, '']);
  });

  it('imports the bolt file of the reference hub', async (test) => {
    const { directory, hubfile } = await setUp(test);
    const file = join(directory, 'updates.db');
    await writeFile(file, gunzipSync(await readFile(REFERENCE_HISTORY)));
    const imported = await history(['import', '--from-bolt', file], hubfile);
    assert.deepEqual([imported.code, imported.stderr], [0, '40 updates were imported\n']);
    const lines = (await history(['export'], hubfile)).stdout.trimEnd().split('\n');
    const [first, second, large, ...others] = lines.map((line) => JSON.parse(line));
    const { at: _at, ...update } = first;
    assert.deepEqual(update, {
      ...{ id: 'urn:first', topics: ['urn:a', 'urn:b'], data: 'several\nlines and ☃' },
      ...{ private: false, type: null, retry: null },
    });
    assert.deepEqual([second.private, second.type, second.retry], [true, 'note', '100']);
    assert.equal(large.data, 'x'.repeat(9000));
    assert.deepEqual(
      others.map(({ id }) => id),
      Array.from({ length: 37 }, (_, index) => `urn:n:${index}`),
    );
    const unknown = await history(
      ['import', '--from-bolt', '--append', file, '--bucket', 'other'],
      hubfile,
    );
    assert.equal(unknown.code, 64);
    assert.match(unknown.stderr, /it has no bucket "other"/);
    const none = await history(['import', '--from-bolt', '--append', hubfile], hubfile);
    assert.match(none.stderr, /it is not a bolt file/);
  });

  it('shows how large the history is and when it begins', async (test) => {
    const { path, hubfile } = await setUp(test);
    const log = await openLog(path, 2);
    for (const id of ['a', 'b', 'c']) await log.append(update(id));
    await log.close();
    const event = { ...update('event'), private: true, type: 'hub', presence: true };
    const file = join(path, 'lines');
    await writeFile(file, `${JSON.stringify(event)}\n`);
    await history(['import', '--append', file], hubfile);
    const { stdout } = await history(['stats', '--json'], hubfile);
    const { updates, presence_events, position, oldest, bytes } = JSON.parse(stdout);
    assert.deepEqual([updates, presence_events, position], [2, 1, 4]);
    assert.ok(Date.parse(oldest) > 0 && bytes > 0);
    const text = await history(['stats'], hubfile);
    assert.match(text.stdout, /^updates {9}2$/m);
  });

  it('finds damage, and reports its position', async (test) => {
    const { path, hubfile } = await setUp(test);
    const log = await openLog(path);
    for (const id of ['a', 'b', 'c']) await log.append(update(id, `the data of ${id}`));
    await log.close();
    assert.deepEqual((await history(['verify'], hubfile)).code, 0);
    await overwrite(path, 'the data of b', 'X');
    const { code, stdout, stderr } = await history(['verify'], hubfile);
    assert.equal(code, 1);
    assert.match(stdout, /^2: an update does not have the checksum/);
    assert.match(stderr, /3 updates and 0 presence events, 1 of them damaged/);
    const data = JSON.parse((await history(['verify', '--json'], hubfile)).stdout);
    assert.deepEqual([data.updates, data.faults.length, data.faults[0].position], [3, 1, 2]);
  });

  it('creates no history where it finds none, except to import', async (test) => {
    const { directory, path, hubfile } = await setUp(test);
    const backup = join(directory, 'backup');
    for (const args of [['stats'], ['verify'], ['compact'], ['export', backup]]) {
      const { code, stderr } = await history(args, hubfile);
      assert.equal(code, 1, args[0]);
      assert.match(stderr, /The history in \S+ was not found/);
    }
    assert.equal(existsSync(backup), false);
    await writeFile(backup, 'no update\n');
    for (const args of [['absent'], ['--from-bolt', 'absent'], [directory], [backup]]) {
      assert.notEqual((await history(['import', ...args], hubfile)).code, 0, args.join(' '));
    }
    assert.equal(existsSync(path), false);
    await writeFile(backup, `${JSON.stringify(update('a'))}\n`);
    assert.equal((await history(['import', backup], hubfile)).code, 0);
  });

  it('says that the URL of the history is empty, as in a shell without the variables of the unit', async (test) => {
    const { hubfile } = await setUp(test);
    for (const kind of ['redis', 'postgres']) {
      await writeFile(hubfile, hubWith(`transport ${kind} {\n\t\t\turl {env.UNSET}\n\t\t}`));
      const { code, stderr } = await history(['export'], hubfile);
      assert.equal(code, 64, stderr);
      assert.match(stderr, /The URL of the history is empty: .*--envfile/);
    }
  });

  it('says why it cannot write an export', async (test) => {
    const { directory, path, hubfile } = await setUp(test);
    const log = await openLog(path);
    test.after(() => log.close());
    await log.append(update('a'));
    const file = join(directory, 'backup');
    await writeFile(file, 'mine');
    for (const [output, why] of [
      [file, `${file} exists already; choose another file`],
      [join(directory, 'absent', 'backup'), `Cannot write ${directory}/absent/backup: ENOENT`],
    ] as const) {
      const { code, stderr } = await history(['export', output], hubfile);
      assert.equal(code, 1);
      assert.ok(stderr.startsWith(`hubgate: ${why}`), stderr);
    }
    assert.equal(await readFile(file, 'utf8'), 'mine');
    const command = `'${process.execPath}' '${cli}' history export --config '${hubfile}' > /dev/full`;
    const full = await promisify(execFile)('bash', ['-c', command]).catch((error) => error);
    assert.equal(full.code, 1);
    assert.match(full.stderr, /^hubgate: Cannot write the output: ENOSPC/m);
  });

  it('gives an export its name when it is complete', async (test) => {
    const { directory } = await setUp(test);
    const file = join(directory, 'backup');
    const names = async () =>
      (await readdir(directory)).filter((name) => name.startsWith('backup'));
    await writeNew(
      file,
      (async function* () {
        yield 'one\n';
        const [partial, ...others] = await names();
        assert.match(partial ?? '', /^backup\.\w+\.partial$/);
        assert.deepEqual(others, []);
        yield 'two\n';
      })(),
    );
    assert.deepEqual(await names(), ['backup']);
    assert.equal(await readFile(file, 'utf8'), 'one\ntwo\n');
    const late = join(directory, 'backup-2');
    const writing = writeNew(
      late,
      (async function* () {
        yield 'mine\n';
        await writeFile(late, 'from another process');
      })(),
    );
    await assert.rejects(writing, /exists already; choose another file/);
    assert.deepEqual(await names(), ['backup', 'backup-2']);
    assert.equal(await readFile(late, 'utf8'), 'from another process');
  });

  it('leaves no part of an export that fails', async (test) => {
    const { directory, path, hubfile } = await setUp(test);
    const log = await openLog(path);
    for (const id of ['a', 'b', 'c']) await log.append(update(id, `the data of ${id}`));
    await log.close();
    await overwrite(path, 'the data of c', 'X');
    const file = join(directory, 'backup');
    const { code, stderr } = await history(['export', file], hubfile);
    assert.equal(code, 1);
    assert.match(stderr, /^hubgate: The update at position 3 cannot be read/m);
    assert.equal(existsSync(file), false);
    await overwrite(path, 'Xhe data of c', 't');
    assert.equal((await history(['export', file], hubfile)).code, 0, 'the next attempt');
  });

  it('says why it cannot read what it should import', async (test) => {
    const { directory, hubfile } = await setUp(test);
    for (const [file, why] of [
      [join(directory, 'absent'), 'the file does not exist'],
      [directory, 'it is a directory'],
    ] as const) {
      const { code, stderr } = await history(['import', file], hubfile);
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`^hubgate: Cannot read ${file}: ${why}$`, 'm'));
    }
  });

  it('frees disk space, but not while a gateway is running', async (test) => {
    const { path, hubfile } = await setUp(test);
    const log = await openLog(path, 5);
    for (let index = 0; index < 40; index += 1) {
      await log.append(update(`u${index}`, 'x'.repeat(100_000)));
    }
    const refused = await history(['compact'], hubfile);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, new RegExp(`in use by process ${process.pid}; stop the gateway`));
    await log.close();
    const before = (await stat(join(path, 'history.mdb'))).size;
    assert.equal((await history(['compact'], hubfile)).code, 0);
    assert.ok((await stat(join(path, 'history.mdb'))).size < before);
    const again = await openLog(path);
    test.after(() => again.close());
    assert.equal(await again.find('u39'), 40);
    assert.equal((await again.read(0, 100)).length, 5);
  });

  it('rejects an unknown hub, and lines that are not updates', async (test) => {
    const { directory, hubfile } = await setUp(test);
    const unknown = await history(['stats', '--hub', 'other.example'], hubfile);
    assert.equal(unknown.code, 64);
    assert.match(unknown.stderr, /--hub /);
    const file = join(directory, 'lines');
    await writeFile(file, `${JSON.stringify(update('a'))}\n{"id":"b"}\n`);
    const refused = await history(['import', file], hubfile);
    assert.equal(refused.code, 64);
    assert.match(refused.stderr, /Line 2 is not an update: "topics" is not a list of texts/);
    // A line end would add fields to the events of its update.
    for (const [fields, why] of [
      [{ id: '1\nevent: evil' }, 'a field contains a line end, NUL or half of a surrogate pair'],
      [{ id: 'a\x01b' }, '"id" must not contain control or format characters'],
      [{ topics: Array.from({ length: 1001 }, String) }, 'too many topics in update (max 1000)'],
      [{ id: 'earliest' }, '"id" must not be "earliest"'],
      [{ id: 'x'.repeat(1025) }, 'id too long'],
      [{ type: 'a\ndata: more' }, 'a field contains a line end, NUL or half of a surrogate pair'],
      [{ retry: '5\ndata: more' }, 'Invalid "retry" parameter'],
      [{ topics: ['a\r'] }, 'a field contains a line end, NUL or half of a surrogate pair'],
      [{ data: '\ud800' }, '"data" contains half of a surrogate pair'],
    ] as const) {
      await writeFile(file, `${JSON.stringify({ ...update('a'), ...fields })}\n`);
      const { code, stderr } = await history(['import', file], hubfile);
      assert.equal(code, 64);
      assert.ok(stderr.includes(`Line 1 is not an update: ${why}`), stderr);
    }
  });
});

async function setUp(test: TestContext) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-history-'));
  removeWith(test, directory);
  const path = join(directory, 'history');
  const hubfile = join(directory, 'Hubfile');
  await writeFile(hubfile, hubWith(`transport lmdb {\n\t\t\tpath ${path}\n\t\t}`));
  return { directory, path, hubfile };
}

function hubWith(transport: string): string {
  return `http://localhost {\n\thub {\n\t\tanonymous\n\t\t${transport}\n\t}\n}\n`;
}

/** Writes over the beginning of a text, wherever the database has it. */
async function overwrite(path: string, text: string, beginning: string): Promise<void> {
  const file = join(path, 'history.mdb');
  const bytes = await readFile(file);
  const handle = await openFile(file, 'r+');
  for (let at = -1; (at = bytes.indexOf(text, at + 1)) !== -1; ) await handle.write(beginning, at);
  await handle.close();
}

function history(args: readonly string[], hubfile: string) {
  return runCommand(['history', ...args, '--config', hubfile, '--adapter', 'hubfile']);
}

function openLog(path: string, size = 0): Promise<Transport> {
  const options = { path, size, maxAgeMs: 0, clock: systemClock, log: silentLogger };
  return openLmdbTransport({ ...options, durability: 'commit' });
}

function update(id: string, data = ''): Update {
  return { id, topics: ['topic'], data, private: false, type: null, retry: null };
}

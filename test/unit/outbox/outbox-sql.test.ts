import assert from 'node:assert/strict';
import { after, describe, it, type TestContext } from 'node:test';
import { profiles } from '../../../src/hub/profile.ts';
import { codeOf } from '../../../src/kernel/error.ts';
import {
  identifiers,
  literal,
  quotedTable,
  outboxSql,
  triggerSql,
} from '../../../src/outbox/outbox-sql.ts';
import type { OutboxRow } from '../../../src/outbox/outbox-table.ts';
import { rowUpdates } from '../../../src/outbox/row-updates.ts';
import { type PostgresServer, startPostgres } from '../../support/postgres-server.ts';

let starting: Promise<PostgresServer | null> | undefined;
const ends: (() => unknown)[] = [];
after(async () => {
  for (const end of ends) await end();
});

/** One server for this file, with an outbox. */
async function database(test: TestContext): Promise<PostgresServer | null> {
  starting ??= (async () => {
    const server = await startPostgres(test, { after: (end) => ends.push(end) });
    const tables = { table: 'hub_outbox', writers: [], reader: null };
    await server?.query(outboxSql(tables));
    // It can be repeated.
    await server?.query(outboxSql(tables));
    return server;
  })();
  return starting;
}

const announced = (topics: readonly string[], table: string, isPrivate = false): string =>
  triggerSql({ table, topics, private: isPrivate, type: 'change', outbox: 'hub_outbox' });

/** What has been announced since the last call. */
async function topicsIn(server: PostgresServer): Promise<unknown[]> {
  const rows = await server.query(
    'WITH gone AS (DELETE FROM hub_outbox RETURNING *) SELECT topics FROM gone ORDER BY seq',
  );
  return rows.map(({ topics }) => topics);
}

describe('hubgate outbox sql', () => {
  it('makes a trigger that announces insert, update and delete, with columns in braces', async (test) => {
    const server = await database(test);
    if (server === null) return;
    await server.query('CREATE TABLE books (id int PRIMARY KEY, shelf text, doc json)');
    await server.query(announced(['/books/{id}', '/books', '/shelves/{shelf}/{id}'], 'books'));
    await server.query(`INSERT INTO books VALUES (1, 'A/b é?', '{}'), (2, NULL, NULL)`);
    assert.deepEqual(await topicsIn(server), [
      ['/books/1', '/books', '/shelves/A%2Fb%20%C3%A9%3F/1'],
      ['/books/2', '/books'],
    ]);
    await server.query(`UPDATE books SET id = 3, shelf = '-._~' WHERE id = 1`);
    assert.deepEqual(await topicsIn(server), [
      [
        ...['/books/3', '/books', '/shelves/-._~/3'],
        ...['/books/1', '/shelves/A%2Fb%20%C3%A9%3F/1'],
      ],
    ]);
    await server.query('UPDATE books SET id = id');
    assert.deepEqual(await topicsIn(server), []);
    await server.query('DELETE FROM books WHERE id = 2');
    const [row] = await server.query('SELECT data, private, type, retry FROM hub_outbox');
    assert.deepEqual(JSON.parse(String(row?.['data'])), { url: '/books/2', operation: 'delete' });
    assert.deepEqual([row?.['private'], row?.['type'], row?.['retry']], [false, 'change', null]);
    await topicsIn(server);
  });

  it('quotes what could be SQL: tables, columns and templates', async (test) => {
    const server = await database(test);
    if (server === null) return;
    const table = `o'"dd; DROP $hubgate$`;
    const column = `c"';--$hubgate$`;
    const quoted = quotedTable([table]);
    await server.query(`CREATE TABLE ${quoted} ("${column.replaceAll('"', '""')}" text)`);
    const template = `/it's\\$hubgate$;/{${column}}`;
    await server.query(announced([template], quoted, true));
    await server.query(`INSERT INTO ${quoted} VALUES ('x')`);
    assert.deepEqual(await topicsIn(server), [[`/it's\\$hubgate$;/x`]]);
  });

  it('lets a role that may only write to the table announce, and nothing else', async (test) => {
    const server = await database(test);
    if (server === null) return;
    await server.query('CREATE TABLE notes (id int); CREATE ROLE app LOGIN');
    await server.query('GRANT ALL ON notes TO app; GRANT CREATE ON SCHEMA public TO app');
    await server.query(announced(['/notes/{id}'], 'public.notes'));
    await server.query('SET ROLE app; INSERT INTO notes VALUES (1)');
    assert.deepEqual(await topicsIn(server), [['/notes/1']]);
    const attempts = [
      `SET ROLE app; INSERT INTO hub_outbox (topic) VALUES ('/x')`,
      `SET ROLE app; CREATE TABLE mine (id text);
        CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION hub_outbox_of_public_notes()`,
    ];
    for (const text of attempts) await assert.rejects(server.query(text), /permission denied/);
  });

  it('gives the gateway and the writers the rights that they need', async (test) => {
    const server = await database(test);
    if (server === null) return;
    await server.query('CREATE ROLE writer LOGIN; CREATE ROLE reader LOGIN');
    await server.query(outboxSql({ table: 'hub_outbox', writers: ['writer'], reader: 'reader' }));
    await server.query(`SET ROLE writer; INSERT INTO hub_outbox (topic, data) VALUES ('/w', 'x')`);
    await assert.rejects(
      server.query(`SET ROLE writer; INSERT INTO hub_outbox (topic, xid) VALUES ('/w', '1')`),
      /permission denied/,
    );
    const taken = await server.query('SET ROLE reader; DELETE FROM hub_outbox RETURNING topic');
    assert.equal(JSON.stringify(taken ?? []).includes('permission'), false);
  });

  it('refuses a column that does not exist before an app could notice', async (test) => {
    const server = await database(test);
    if (server === null) return;
    await server.query('CREATE TABLE lists (id int)');
    await assert.rejects(server.query(announced(['/lists/{ident}'], 'lists')), /ident/);
    await server.query('INSERT INTO lists VALUES (1)');
  });

  it('refuses templates and names that mean nothing', () => {
    for (const template of ['', '/a/{', '/a/}', '/a/{}', '/a/{{id}}', '/a\n']) {
      assert.throws(() => announced([template], 'books'), /is not a topic/, template);
    }
    for (const table of ['', '.', 'a.', '.a', 'a.b.c', 'x'.repeat(64), '"']) {
      assert.throws(
        () => identifiers(table),
        (error) => codeOf(error) === 'bad-table-name',
        table,
      );
    }
    assert.deepEqual(identifiers('"a.b""c".d'), ['a.b"c', 'd']);
    assert.equal(literal(`a'b\\`), String.raw`E'a''b\\'`);
  });
});

describe('the update of a row', () => {
  const row: OutboxRow = {
    ...{ seq: '1', id: 'urn:1', topics: ['/books/1'], data: 'x', private: false },
    ...{ type: null, retry: null, isTooLarge: false },
  };
  const rules = {
    profile: profiles.hub,
    base: 'https://hub.invalid/.well-known/hub',
    hubPath: '/.well-known/hub',
    origins: ['https://a.example', 'http://b.example:8080'],
    maxBytes: 1000,
  };
  const updateOf = (given: Partial<OutboxRow>, topics: readonly string[] = []) =>
    rowUpdates({ ...rules, outbox: { topics } })({ ...row, ...given });

  it('has the URL of a page on each origin of the site', () => {
    assert.deepEqual(updateOf({}).topics, [
      'https://a.example/books/1',
      'http://b.example:8080/books/1',
    ]);
    assert.deepEqual(updateOf({ topics: ['urn:x', '//c.example/'] }).topics, [
      'urn:x',
      '//c.example/',
    ]);
  });

  it('is refused outside topics, if it is too large, reserved or invalid', () => {
    const accepted = ['/books/*', 'urn:news', 'https://c.example/*'];
    for (const topics of [
      ['/books/2'],
      ['urn:news'],
      ['https://c.example/x'],
      ['/books/1', 'urn:news'],
    ]) {
      assert.equal(updateOf({ topics }, accepted).id, 'urn:1');
    }
    const refused: [Partial<OutboxRow>, RegExp][] = [
      [{ topics: ['/users/1'] }, /outside "topics"/],
      [{ topics: ['/books/1', 'urn:other'] }, /outside "topics"/],
      [{ topics: ['https://d.example/books/1'] }, /outside "topics"/],
      [{ topics: ['/.well-known/hub/subscriptions'] }, /reserved/],
      [{ topics: [] }, /Missing "topic"/],
      [{ topics: ['urn:\n'] }, /control/],
      [{ isTooLarge: true }, /more than 1000 bytes/],
      [{ retry: '-1' }, /retry/],
      [{ type: profiles.hub.reservedType }, /type/],
    ];
    for (const [given, why] of refused) assert.throws(() => updateOf(given, accepted), why);
    const homeless = rowUpdates({ ...rules, origins: [], outbox: { topics: [] } });
    assert.throws(() => homeless(row), /set origins/);
  });
});

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { Secret } from '../../src/kernel/secret.ts';
import { setUpSql } from '../../src/transports/postgres/tables.ts';
import { onBoard } from '../support/board.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { startPgBouncer } from '../support/pgbouncer.ts';
import { collect, ids, openHistory, until, update } from '../support/postgres-history.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('common PostgreSQL deployments', () => {
  it('work over TLS, verified with the configured authorities, and with a password file', async (test) => {
    const directory = await temporaryDirectory(test);
    const authority = createClientAuthority(directory, 'root');
    const { cert, key } = authority.issue('localhost', 'serverAuth');
    const other = createClientAuthority(await temporaryDirectory(test), 'other');
    const postgres = await startPostgres(test, test, {
      settings: ['ssl = on'],
      access: ['hostssl all gateway all scram-sha-256', 'host all gateway all reject'],
      files: { 'server.crt': cert, 'server.key': key },
    });
    if (postgres === null) return;
    await postgres.query("CREATE ROLE gateway LOGIN SUPERUSER PASSWORD 'secret'");
    const passwordFile = join(directory, 'password');
    await writeFile(passwordFile, 'secret\n');
    const at = (host: string, query = ''): string =>
      `postgres://gateway@${host}:${postgres.port}/postgres${query}`;
    const trusted = { passwordFile, trustPoolFile: authority.file };
    await serves(test, { url: at('localhost'), ...trusted });
    await serves(test, { url: at('127.0.0.1', '?sslmode=require'), passwordFile });
    const verifying = `?sslmode=verify-full&sslrootcert=${encodeURIComponent(authority.file)}`;
    await serves(test, { url: at('localhost', verifying), passwordFile });
    const refused = [
      [{ url: at('127.0.0.1'), ...trusted }, /does not match certificate|altnames/i],
      [{ url: at('localhost'), passwordFile, trustPoolFile: other.file }, /self.signed|unable to/i],
      [{ url: at('localhost', '?sslmode=verify-full'), passwordFile }, /self.signed|unable to/i],
      [{ url: at('localhost', '?sslmode=disable'), passwordFile }, /no encryption|reject/i],
    ] as const;
    for (const [options, message] of refused) {
      await assert.rejects(openHistory(test, options), { code: 'transport-failed', message });
    }
  });

  it('work with a role that has only the necessary rights', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    await postgres.query('CREATE ROLE gateway LOGIN');
    const url = `postgres://gateway@127.0.0.1:${postgres.port}/postgres`;
    await assert.rejects(openHistory(test, { url }), {
      code: 'transport-failed',
      message: /run hubgate history init/,
    });
    await postgres.query(setUpSql('hubgate', 'gateway'));
    await serves(test, { url });
    await postgres.query('CREATE ROLE stranger LOGIN');
    const stranger = `postgres://stranger@127.0.0.1:${postgres.port}/postgres`;
    await assert.rejects(openHistory(test, { url: stranger }), /permission denied/);
  });

  it('work through PgBouncer in transaction mode if the server itself is there for LISTEN', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const pool = await startPgBouncer(test, test, postgres, 'transaction');
    if (pool === null) return;
    await assert.rejects(openHistory(test, { url: pool.url }), {
      code: 'postgres-pooler',
      message: /transaction mode.*listen_url/,
    });
    await postgres.query('CREATE DATABASE other');
    const elsewhere = new Secret(postgres.database('other').url);
    await assert.rejects(openHistory(test, { url: pool.url, listenUrl: elsewhere }), {
      code: 'transport-failed',
      message: /different servers or databases/,
    });
    const listenUrl = new Secret(postgres.url);
    const nodes = [
      await serves(test, { url: pool.url, listenUrl }),
      await serves(test, { url: pool.url, listenUrl }),
    ];
    // Otherwise the first might still deliver the update that the second has stored above.
    for (const node of nodes) await node.caughtUp?.();
    const seen = nodes.map(collect);
    const many = Array.from({ length: 200 }, (_, index) => `m${index}`);
    await Promise.all(many.map(async (id, index) => nodes[index % 2]?.append(update(id))));
    await until(() => seen.every((entries) => entries.length === many.length));
    assert.deepEqual(seen.map(ids)[0], seen.map(ids)[1]);
  });

  it('work through PgBouncer in session mode', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const pool = await startPgBouncer(test, test, postgres, 'session');
    if (pool !== null) await serves(test, { url: pool.url });
  });
});

/** Everything that a hub asks of its history. */
async function serves(test: TestContext, options: Parameters<typeof openHistory>[1]) {
  const transport = await openHistory(test, options);
  const seen = collect(transport);
  const before = transport.position;
  await transport.append(update('a'));
  await transport.check();
  assert.deepEqual(ids(seen), ['a']);
  assert.equal((await transport.read(before, 1)).length, 1);
  assert.notEqual(await transport.find('a'), null);
  await transport.caughtUp?.();
  await transport.counts?.count('key', 1, 1000);
  void transport.signals?.send('signal');
  await transport.presence.enter('urn:s', [
    {
      id: 's',
      type: 'subscription',
      subscriber: 'urn:s',
      match: 'm',
      match_type: 'exact',
      active: true,
    },
  ]);
  assert.equal((await onBoard(transport.presence)).length, 1);
  await transport.presence.leave('urn:s');
  assert.deepEqual(await onBoard(transport.presence), []);
  return transport;
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parsePostgresUrl } from '../../../src/config/postgres-url.ts';

describe('the URL of a PostgreSQL server', () => {
  it('has defaults for everything', () => {
    assert.deepEqual(parsePostgresUrl('postgres://'), {
      hosts: [{ host: 'localhost', port: 5432 }],
      ...{ user: null, password: null, database: null, sslMode: null, options: null },
      ...{ rootCertificateFile: null, clientCertificateFile: null, clientKeyFile: null },
      ...{ sessionAttributes: 'read-write', connectTimeoutMs: 3000, applicationName: 'hubgate' },
    });
  });

  it('names several hosts, a user with a password and what TLS verifies', () => {
    const query =
      'sslmode=verify-full&sslrootcert=ca.pem&target_session_attrs=any&connect_timeout=7';
    const read = parsePostgresUrl(`postgresql://app:p%40ss@one:1,[::1]:2,three/db?${query}`);
    assert.deepEqual(read.hosts, [
      { host: 'one', port: 1 },
      { host: '::1', port: 2 },
      { host: 'three', port: 5432 },
    ]);
    const { user, password, database, sslMode, rootCertificateFile } = read;
    assert.deepEqual([user, password, database], ['app', 'p@ss', 'db']);
    assert.deepEqual([sslMode, rootCertificateFile], ['verify-full', 'ca.pem']);
    assert.deepEqual([read.sessionAttributes, read.connectTimeoutMs], ['any', 7000]);
  });

  it('names the directory of a socket', () => {
    const read = parsePostgresUrl('postgres://app@/db?host=/run/postgresql&port=5433');
    assert.deepEqual(read.hosts, [{ host: '/run/postgresql', port: 5433 }]);
    const encoded = parsePostgresUrl('postgres://app@%2Frun%2Fpostgresql/db');
    assert.deepEqual(encoded.hosts, [{ host: '/run/postgresql', port: 5432 }]);
  });

  it('is refused without any of its parts in the message', () => {
    const refused = [
      'mysql://u:topsecret@h/d',
      'postgres://u:topsecret@h:port/d',
      'postgres://u:top@secret@h/d',
      'postgres://u:topsecret@h:70000/d',
      'postgres://u:topsecret@h/d?sslmode=verify_full',
      'postgres://u:topsecret@h/d?sslmod=verify-full',
      'postgres://u:topsecret@h/d?target_session_attrs=standby',
      'postgres://u:topsecret%@h/d',
      'postgres://u:topsecret@h/d?connect_timeout=0',
    ];
    for (const text of refused) {
      assert.throws(
        () => parsePostgresUrl(text),
        (error: Error) => {
          assert.equal(Reflect.get(error, 'code'), 'bad-postgres-url');
          assert.doesNotMatch(error.message, /secret/);
          return true;
        },
        text,
      );
    }
  });
});

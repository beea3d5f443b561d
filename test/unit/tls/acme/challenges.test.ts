import assert from 'node:assert/strict';
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { challengeName, Challenges } from '../../../../src/tls/acme/challenges.ts';
import { openssl } from '../../../support/openssl.ts';
import { temporaryDirectory } from '../../../support/temporary-directory.ts';
import { TestClock } from '../../../support/test-clock.ts';

const HOUR_MS = 60 * 60 * 1000;
const TOKEN = 'evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA';
const KEY_AUTHORIZATION = `${TOKEN}.9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI`;

describe('responses to ACME challenges', () => {
  it('are served by another process that shares the storage, until they are withdrawn', async (test) => {
    const { storage, clock, challenges } = await setUp(test);
    const other = new Challenges(storage, clock);
    assert.equal(await other.keyAuthorization(TOKEN), null);
    const withdraw = await challenges.publish(http());
    assert.equal(await other.keyAuthorization(TOKEN), KEY_AUTHORIZATION);
    const file = join(storage, 'acme', 'challenges', 'http-01', TOKEN);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    await withdraw();
    assert.equal(await other.keyAuthorization(TOKEN), null);
  });

  it('are not looked up for anything that is not a token (RFC 8555 §8.3)', async (test) => {
    const { storage, challenges } = await setUp(test);
    await challenges.publish(http());
    writeFileSync(
      join(storage, 'secret'),
      JSON.stringify({ expires: 9e15, keyAuthorization: 'x' }),
    );
    for (const token of [
      ...['', '.', '..', '../../../secret', `${TOKEN}/`, `./${TOKEN}`, `${TOKEN}\0`, `${TOKEN}%00`],
      ...['a'.repeat(255), 'a'.repeat(256), 'a'.repeat(257), 'ä', `${TOKEN}\n`],
    ]) {
      assert.equal(await challenges.keyAuthorization(token), null, token);
    }
  });

  it('are not stored for anything that is not a token, because it becomes the name of a file', async (test) => {
    const { storage, challenges } = await setUp(test);
    for (const type of ['http-01', 'tls-alpn-01'] as const) {
      for (const token of ['../../../secret', '', `${TOKEN}/x`]) {
        const published = challenges.publish({ ...http(), type, token });
        await assert.rejects(published, { code: 'acme-refused' });
      }
    }
    assert.deepEqual(readdirSync(storage), []);
  });

  it('have tokens that are file names, with the suffix of a file that is being written', async (test) => {
    const { challenges } = await setUp(test);
    for (let length = 200; length <= 260; length += 1) {
      const token = 'a'.repeat(length);
      const isPublished = await challenges.publish({ ...http(), token }).then(
        () => true,
        (error: { code: string }) => assert.equal(error.code, 'acme-refused'),
      );
      const found = await challenges.keyAuthorization(token);
      assert.equal(found, isPublished ? KEY_AUTHORIZATION : null);
    }
  });

  it('expire by themselves, and are deleted when the next one is stored', async (test) => {
    const { storage, clock, challenges } = await setUp(test);
    await challenges.publish(http());
    clock.advance(HOUR_MS);
    assert.equal(await challenges.keyAuthorization(TOKEN), null);
    await challenges.publish({ ...http(), token: 'another' });
    assert.deepEqual(readdirSync(join(storage, 'acme', 'challenges', 'http-01')), ['another']);
  });

  it('for TLS-ALPN-01 are a certificate for the one name, with the digest in a critical extension (RFC 8737 §3)', async (test) => {
    const { storage, challenges } = await setUp(test);
    await challenges.publish({ ...http(), type: 'tls-alpn-01' });
    const answer = await challenges.certificate('a.example.com');
    assert.ok(answer);
    const certificate = new X509Certificate(answer.chain);
    assert.equal(certificate.subjectAltName, 'DNS:a.example.com');
    assert.ok(certificate.checkPrivateKey(createPrivateKey(answer.key)));
    const file = join(storage, 'challenge.pem');
    writeFileSync(file, answer.chain);
    const text = await openssl('x509', '-in', file, '-noout', '-text');
    assert.match(text, /1\.3\.6\.1\.5\.5\.7\.1\.31: critical/);
    const digest = createHash('sha256').update(KEY_AUTHORIZATION).digest();
    assert.ok(certificate.raw.includes(Buffer.concat([Buffer.from([0x04, 0x20]), digest])));
    assert.equal(await challenges.certificate('b.example.com'), null);
  });

  it('for TLS-ALPN-01 with an address use the name of the reverse lookup (RFC 8738 §6)', async (test) => {
    const { challenges } = await setUp(test);
    await challenges.publish({ ...http(), type: 'tls-alpn-01', name: '192.0.2.7' });
    const answer = await challenges.certificate('7.2.0.192.in-addr.arpa');
    assert.equal(
      answer && new X509Certificate(answer.chain).subjectAltName,
      'IP Address:192.0.2.7',
    );
    assert.equal(
      challengeName('2001:db8::1'),
      '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa',
    );
    assert.equal(challengeName('::'), `${'0.'.repeat(32)}ip6.arpa`);
    assert.equal(
      challengeName('1:2:3:4:5:6:7:8'),
      '8.0.0.0.7.0.0.0.6.0.0.0.5.0.0.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.ip6.arpa',
    );
  });

  it('leave alone a file that another process is writing', async (test) => {
    const { storage, challenges } = await setUp(test);
    await challenges.publish(http());
    const begun = join(storage, 'acme', 'challenges', 'http-01', 'begun.0123');
    writeFileSync(begun, '{"expires"');
    await challenges.publish({ ...http(), token: 'another' });
    assert.equal(readFileSync(begun, 'utf8'), '{"expires"');
  });
});

function http() {
  return {
    type: 'http-01',
    name: 'a.example.com',
    token: TOKEN,
    keyAuthorization: KEY_AUTHORIZATION,
  } as const;
}

async function setUp(test: TestContext) {
  const storage = await temporaryDirectory(test);
  const clock = new TestClock();
  return { storage, clock, challenges: new Challenges(storage, clock) };
}

import assert from 'node:assert/strict';
import { createSign, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { type Jwks, jwksKeySet, type JwksOptions, openJwks } from '../../../src/auth/jwks.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { FakeClock } from './fake-clock.ts';
import {
  accepted,
  claims,
  fixture,
  type Fixture,
  issuer,
  NOW_MS,
  PUBLISHER_SECRET,
  refused,
  sign,
} from './hub-fixture.ts';
import { answerKeys, type JwksServer, startJwksServer } from './jwks-server.ts';

interface Pair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}
const ec = (): Pair => generateKeyPairSync('ec', { namedCurve: 'P-256' });
const a = ec();
const b = ec();
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const ed = generateKeyPairSync('ed25519');

const jwk = (key: KeyObject, members: Record<string, unknown> = {}): Record<string, unknown> => ({
  ...key.export({ format: 'jwk' }),
  ...members,
});
const token = (pair: Pair, header: Record<string, unknown> = {}): Promise<string> =>
  sign(claims(), { header: { alg: 'ES256', ...header }, key: pair.privateKey });

const open: { close(): void | Promise<void> }[] = [];
afterEach(async () => {
  for (const resource of open.splice(0)) await resource.close();
});

interface World extends Fixture {
  readonly jwks: Jwks;
  readonly server: JwksServer;
  readonly fetchClock: FakeClock;
  readonly warnings: readonly string[];
}

interface Settings {
  readonly algorithms?: readonly string[];
  readonly options?: Partial<JwksOptions>;
}

/** A hub whose publisher keys come from a local server. */
async function world(keys: readonly unknown[], settings: Settings = {}): Promise<World> {
  const server = await startJwksServer(keys);
  open.push(server);
  return await worldOf(server, settings);
}

/** A hub whose key set does not arrive, with a token that waits for it. */
async function waitingForKeys(): Promise<{ hub: World; verdict: ReturnType<typeof refused> }> {
  const server = await startJwksServer([]);
  open.push(server);
  const asked = new Promise<void>((resolve) => {
    server.answer = () => resolve();
  });
  const hub = await worldOf(server);
  const verdict = refused(hub, await token(a, { kid: 'a' }));
  await asked;
  return { hub, verdict };
}

async function worldOf(
  server: JwksServer,
  { algorithms = [], options = {} }: Settings = {},
): Promise<World> {
  const fetchClock = new FakeClock(NOW_MS);
  const warnings: string[] = [];
  const log: Logger = {
    ...silentLogger,
    warn: (message, fields) => void warnings.push(`${message} ${JSON.stringify(fields)}`),
  };
  const jwks = await openJwks({
    uri: server.uri,
    refreshMs: 600_000,
    cooldownMs: 30_000,
    timeoutMs: 5000,
    clock: fetchClock,
    log,
    fetch,
    ...options,
  });
  open.push(jwks);
  const source = { uri: server.uri, algorithms };
  const publisher = jwksKeySet(jwks, source);
  const hub = fixture({ issuers: [{ ...issuer, publisher }] });
  return { ...hub, jwks, server, fetchClock, warnings };
}

describe('JWK Sets that verify (C.7)', () => {
  it('C-302 checks a token with the key that its kid names, and fetches once', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' }), jwk(b.publicKey, { kid: 'b' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    await accepted(hub, await token(b, { kid: 'b' }));
    assert.equal((await refused(hub, await token(b, { kid: 'a' }))).check, 'signature');
    assert.equal(hub.server.requests(), 1);
  });
  it('C-303 tries every key for a token without kid', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' }), jwk(b.publicKey)]);
    await accepted(hub, await token(b));
    await accepted(hub, await token(a));
  });
  it('C-304 refuses a kid that is not a string', async () => {
    const hub = await world([jwk(a.publicKey)]);
    const text = await token(a);
    const header = Buffer.from('{"alg":"ES256","typ":"at+jwt","kid":7}').toString('base64url');
    await refused(hub, [header, ...text.split('.').slice(1)].join('.'));
  });
  it('C-309 accepts no symmetric key from a set', async () => {
    const oct = { kty: 'oct', k: Buffer.from(PUBLISHER_SECRET).toString('base64url') };
    const hub = await world([oct, jwk(a.publicKey)]);
    assert.equal((await refused(hub, await sign())).check, 'alg');
    await accepted(hub, await token(a));
  });
  it('C-309 verifies EdDSA, Ed25519 (RFC 9864), RS256 and PS256', async () => {
    const hub = await world([jwk(ed.publicKey), jwk(rsa.publicKey)]);
    await accepted(hub, await token(ed, { alg: 'EdDSA' }));
    await accepted(hub, await token(ed, { alg: 'Ed25519' }));
    await accepted(hub, await token(rsa, { alg: 'RS256' }));
    await accepted(hub, await token(rsa, { alg: 'PS256' }));
  });
  it('C-310 accepts only the listed algorithms', async () => {
    const hub = await world([jwk(a.publicKey), jwk(rsa.publicKey)], { algorithms: ['RS256'] });
    await accepted(hub, await token(rsa, { alg: 'RS256' }));
    assert.equal((await refused(hub, await token(a))).check, 'alg');
    const { jwks } = hub;
    for (const name of ['HS256', 'none', 'X']) {
      assert.throws(() => jwksKeySet(jwks, { uri: hub.server.uri, algorithms: [name] }), {
        code: 'unsupported-algorithm',
      });
    }
  });
  it('C-311 C-312 uses a key only for its own algorithm and type', async () => {
    const hub = await world([jwk(rsa.publicKey, { alg: 'RS512', kid: 'r' })]);
    await refused(hub, await token(rsa, { alg: 'RS256', kid: 'r' }));
    await refused(hub, await token(a, { kid: 'r' }));
    await accepted(hub, await token(rsa, { alg: 'RS512', kid: 'r' }));
    assert.equal(hub.server.requests(), 1, 'a known kid is no reason to fetch');
  });
  it('C-315 ignores keys for encryption and keys that it cannot read', async () => {
    const keys = [
      jwk(a.publicKey, { use: 'enc' }),
      { kty: 'EC', crv: 'P-256' },
      7,
      jwk(b.publicKey, { use: 'sig' }),
    ];
    const hub = await world(keys);
    await accepted(hub, await token(b));
    await refused(hub, await token(a));
  });
  it('says that a key is too short', async () => {
    const weak = generateKeyPairSync('rsa', { modulusLength: 1024 });
    const hub = await world([jwk(weak.publicKey, { kid: 'weak' })]);
    const other = await token(rsa, { alg: 'RS256', kid: 'weak' });
    const signed = other.slice(0, other.lastIndexOf('.'));
    const signature = createSign('sha256').update(signed).sign(weak.privateKey, 'base64url');
    const { found } = await refused(hub, `${signed}.${signature}`);
    assert.match(found, /an RSA key of 1024 bits, and tokens need at least 2048/);
  });
  it('C-314 C-316 keeps the sets of different issuers and roles apart', async () => {
    const hub = await world([jwk(a.publicKey)]);
    await refused(hub, await token(a), { role: 'subscriber' });
    await accepted(hub, await token(a));
  });
});

describe('JWK Sets that change or fail (C.7)', () => {
  it('C-305 fetches again for an unknown kid, at most once per cooldown', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    const rotated = await token(b, { kid: 'b' });
    await accepted(hub, rotated);
    assert.equal(hub.server.requests(), 2);
    hub.fetchClock.advance(5_000);
    await refused(hub, await token(a, { kid: 'c' }));
    assert.equal(hub.server.requests(), 3);
    await refused(hub, await token(a, { kid: 'c' }));
    assert.equal(hub.server.requests(), 4, 'the first of the cooldown');
    await refused(hub, await token(a, { kid: 'c' }));
    hub.fetchClock.advance(29_999);
    await refused(hub, await token(a, { kid: 'c' }));
    assert.equal(hub.server.requests(), 4, 'within the cooldown nothing is fetched');
    hub.fetchClock.advance(1);
    await refused(hub, await token(a, { kid: 'c' }));
    assert.equal(hub.server.requests(), 5);
  });
  it('C-305 accepts a rotated key, even if another client sent an unknown kid a moment before', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    for (const kid of ['junk', 'junk', 'junk']) await refused(hub, await token(a, { kid }));
    const before = hub.server.requests();
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    // Fresh junk waits for the same fetch as the rotated key.
    const kids = Array.from({ length: 20 }, (_, at) => `fresh ${at}`);
    const texts = await Promise.all(kids.map((kid) => token(a, { kid })));
    const text = await token(b, { kid: 'b' });
    const junk = texts.map((one) => refused(hub, one));
    const rotated = accepted(hub, text);
    while (hub.fetchClock.waiting < 2) await new Promise((turn) => setImmediate(turn));
    hub.fetchClock.advance(5_000);
    await rotated;
    await Promise.all(junk);
    assert.equal(hub.server.requests(), before + 1);
  });
  it('C-305 lets a limited number of unknown kids wait, and as many again after the next fetch', async () => {
    const { jwks, fetchClock } = await world([jwk(a.publicKey, { kid: 'a' })]);
    const find = (kid: string) => jwks.find({ alg: 'ES256', kid });
    await find('a');
    await find('first');
    const waiting = Array.from({ length: 10_000 }, (_, at) => find(`junk ${at}`));
    assert.ok(waiting.every((found) => found instanceof Promise));
    assert.equal(find('one too many'), null);
    fetchClock.advance(5_000);
    await Promise.all(waiting);
    assert.ok(find('later') instanceof Promise);
  });
  it('C-305 shares one fetch among all waiting requests', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    const rotated = await token(b, { kid: 'b' });
    await Promise.all(Array.from({ length: 20 }, () => accepted(hub, rotated)));
    assert.equal(hub.server.requests(), 2);
  });
  it('C-305 asks again if the fetch under way began before the key was added', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    const old = answerKeys([jwk(a.publicKey, { kid: 'a' })]);
    let sendOld: () => void = () => {};
    const asked = new Promise<void>((resolve) => {
      hub.server.answer = (response) => {
        sendOld = () => old(response);
        resolve();
      };
    });
    hub.fetchClock.advance(600_000);
    await asked;
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    const kids = ['b', 'junk', 'b', 'b'];
    const [first, junk, ...others] = await Promise.all(kids.map((kid) => token(b, { kid })));
    const verdicts = [first, ...others].map((text) => accepted(hub, text ?? ''));
    const refusal = refused(hub, junk ?? '');
    sendOld();
    await Promise.all([...verdicts, refusal]);
    assert.equal(hub.server.requests(), 3, 'one more for all of them');
  });
  it('C-306 refreshes the set in the background, and drops verified tokens whose keys were removed', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    const old = await token(a, { kid: 'a' });
    await accepted(hub, old);
    const before = hub.jwks.generation;
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    hub.fetchClock.advance(600_000);
    // Waits for the refresh that is under way instead of causing one.
    await accepted(hub, await token(b, { kid: 'b' }));
    assert.equal(hub.server.requests(), 2);
    assert.equal(hub.jwks.generation, before + 1);
    await refused(hub, old);
  });
  for (const [name, answer] of [
    ['500', (response) => void response.writeHead(500).end()],
    ['no JSON', (response) => void response.end('<html>')],
    ['no set', (response) => void response.end('{"key":1}')],
    ['a redirect', (response) => void response.writeHead(302, { location: '/x' }).end()],
    ['a document of 2 MiB', (response) => void response.end(' '.repeat(2 * 1024 * 1024))],
    ['a broken connection', (response) => void response.socket?.destroy()],
  ] as const satisfies readonly (readonly [string, JwksServer['answer']])[]) {
    it(`C-307 keeps the last valid keys after ${name}, and logs it`, async () => {
      const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
      await accepted(hub, await token(a, { kid: 'a' }));
      hub.server.answer = answer;
      const diagnosis = await refused(hub, await token(b, { kid: 'b' }));
      assert.equal(diagnosis.check, 'keys', 'it may be the key of a rotation');
      assert.equal(hub.warnings.length, 1);
      await accepted(
        hub,
        await sign(claims({ jti: 'other' }), {
          header: { alg: 'ES256', kid: 'a' },
          key: a.privateKey,
        }),
      );
    });
  }
  it('C-307 takes no keys from the place to which a redirect leads', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    const elsewhere = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    hub.server.answer = (response) => {
      if (response.req.url === '/elsewhere') elsewhere(response);
      else response.writeHead(302, { location: '/elsewhere' }).end();
    };
    assert.equal((await refused(hub, await token(b, { kid: 'b' }))).check, 'keys');
    assert.equal(hub.server.requests(), 2, 'the redirect is not followed');
  });
  it('C-306 refreshes again soon after a failure, so that a withdrawn key is not accepted for another period', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    const old = await token(a, { kid: 'a' });
    await accepted(hub, old);
    hub.server.answer = (response) => void response.writeHead(500).end();
    hub.fetchClock.advance(600_000);
    while (hub.warnings.length === 0) await new Promise((turn) => setImmediate(turn));
    hub.fetchClock.advance(5_000);
    while (hub.warnings.length === 1) await new Promise((turn) => setImmediate(turn));
    await accepted(hub, old);
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    hub.fetchClock.advance(9_999);
    assert.equal(hub.server.requests(), 3);
    hub.fetchClock.advance(1);
    await accepted(hub, await token(b, { kid: 'b' }));
    assert.equal(hub.server.requests(), 4);
    await refused(hub, old);
  });
  it('C-305 asks soon for a kid that was in vain, if the set could not be fetched since', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    const early = await token(b, { kid: 'b' });
    assert.equal((await refused(hub, early)).check, 'signature');
    hub.server.answer = (response) => void response.writeHead(500).end();
    assert.equal((await refused(hub, early)).check, 'keys');
    hub.server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    const verdict = accepted(hub, early);
    while (hub.fetchClock.waiting < 2) await new Promise((turn) => setImmediate(turn));
    hub.fetchClock.advance(5_000);
    await verdict;
  });
  it('C-307 says of a token without kid that it may be valid while the set cannot be fetched', async () => {
    const hub = await world([jwk(a.publicKey)]);
    await accepted(hub, await token(a));
    assert.equal((await refused(hub, await token(b))).check, 'signature');
    hub.server.answer = (response) => void response.writeHead(500).end();
    hub.fetchClock.advance(600_000);
    while (hub.warnings.length === 0) await new Promise((turn) => setImmediate(turn));
    await accepted(hub, await token(a));
    assert.equal((await refused(hub, await token(b))).check, 'keys');
  });
  it('C-315 finds a key behind a hundred others that are not for signatures', async () => {
    const others = Array.from({ length: 100 }, (_, at) =>
      jwk(b.publicKey, { kid: String(at), use: 'enc' }),
    );
    const hub = await world([...others, jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
  });
  it('C-307 uses the keys of an open set with the same URL until a fetch succeeds', async () => {
    const before = await world([jwk(a.publicKey, { kid: 'a' })]);
    const old = await token(a, { kid: 'a' });
    await accepted(before, old);
    const { server, fetchClock, jwks } = before;
    server.answer = (response) => void response.writeHead(500).end();
    const { uri } = server;
    const times = { refreshMs: 1_000, cooldownMs: 30_000, timeoutMs: 5_000 };
    const changed = await openJwks(
      { uri, ...times, clock: fetchClock, log: silentLogger, fetch },
      jwks,
    );
    open.push(changed);
    const publisher = jwksKeySet(changed, { uri, algorithms: [] });
    const hub = fixture({ issuers: [{ ...issuer, publisher }] });
    await accepted(hub, old);
    await refused(hub, await token(b, { kid: 'b' }));
    await accepted(hub, old);
    server.answer = answerKeys([jwk(b.publicKey, { kid: 'b' })]);
    fetchClock.advance(30_000);
    await accepted(hub, await token(b, { kid: 'b' }));
    await refused(hub, old);
  });
  it('C-307 gives up on a response that takes too long', async () => {
    const { hub, verdict } = await waitingForKeys();
    hub.fetchClock.advance(5000);
    assert.equal((await verdict).check, 'keys');
    assert.match(hub.warnings.join(), /too long/);
  });
  it('C-308 starts without keys, and accepts tokens as soon as a fetch succeeds', async () => {
    const server = await startJwksServer([]);
    open.push(server);
    server.answer = (response) => void response.writeHead(503).end();
    const hub = await worldOf(server);
    const good = await token(a, { kid: 'a' });
    while (hub.warnings.length === 0) await new Promise((turn) => setImmediate(turn));
    assert.match(hub.warnings.join(), /no token of this issuer can be verified/);
    const diagnosis = await refused(hub, good);
    assert.equal(diagnosis.check, 'keys', 'the token may be valid');
    assert.match(diagnosis.found, /it answered 503/);
    const waiting = refused(hub, good);
    while (hub.fetchClock.waiting < 2) await new Promise((turn) => setImmediate(turn));
    hub.fetchClock.advance(5_000);
    assert.equal((await waiting).check, 'keys');
    assert.equal(server.requests(), 3, 'a kid was not looked for in vain if no set has arrived');
    server.answer = answerKeys([jwk(a.publicKey, { kid: 'a' })]);
    hub.fetchClock.advance(5_000);
    await accepted(hub, good);
    hub.fetchClock.advance(5_000);
    assert.equal((await refused(hub, await token(a, { kid: 'b' }))).check, 'signature');
  });
  it('sends no more requests after it is closed', async () => {
    const hub = await world([jwk(a.publicKey, { kid: 'a' })]);
    await accepted(hub, await token(a, { kid: 'a' }));
    hub.jwks.close();
    hub.fetchClock.advance(10_000_000);
    assert.equal((await refused(hub, await token(b, { kid: 'b' }))).check, 'keys');
    await accepted(hub, await token(a, { kid: 'a' }));
    assert.equal(hub.server.requests(), 1);
    assert.deepEqual(hub.warnings, []);
  });
  it('says of tokens that wait when it is closed that they may be valid', async () => {
    const { hub, verdict } = await waitingForKeys();
    hub.jwks.close();
    assert.equal((await verdict).check, 'keys');
  });
});

describe('JWK Sets in files (C-313, H-504)', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-jwks-'));
  after(() => rm(directory, { recursive: true }));
  const file = join(directory, 'jwks.json');
  const options: JwksOptions = {
    uri: pathToFileURL(file).href,
    refreshMs: 1,
    cooldownMs: 1,
    timeoutMs: 1,
    clock: new FakeClock(0),
    log: silentLogger,
    fetch: () => assert.fail('a file is not fetched'),
  };

  it('C-313 reads file:///path and file://localhost/path when it opens', async () => {
    await writeFile(file, JSON.stringify({ keys: [jwk(a.publicKey, { kid: 'a' })] }));
    for (const uri of [options.uri, options.uri.replace('file://', 'file://localhost')]) {
      const jwks = await openJwks({ ...options, uri });
      const publisher = jwksKeySet(jwks, { uri, algorithms: [] });
      const hub = fixture({ issuers: [{ ...issuer, publisher }] });
      await accepted(hub, await token(a, { kid: 'a' }));
      await refused(hub, await token(b, { kid: 'b' }));
      jwks.close();
    }
  });
  it('C-313 reads a file again, so that a key removed from it is no longer valid', async () => {
    const clock = new FakeClock(0);
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    await writeFile(file, JSON.stringify({ keys: [jwk(a.publicKey, { kid: 'a' })] }));
    const log = { ...silentLogger, warn };
    const jwks = await openJwks({ ...options, refreshMs: 600_000, cooldownMs: 30_000, clock, log });
    open.push(jwks);
    const publisher = jwksKeySet(jwks, { uri: options.uri, algorithms: [] });
    const hub = fixture({ issuers: [{ ...issuer, publisher }] });
    const old = await token(a, { kid: 'a' });
    await accepted(hub, old);
    const before = jwks.generation;
    await writeFile(file, JSON.stringify({ keys: [jwk(b.publicKey, { kid: 'b' })] }));
    clock.advance(10_000);
    // Waits for the reading that is under way instead of causing one.
    await accepted(hub, await token(b, { kid: 'b' }));
    assert.equal(jwks.generation, before + 1);
    await refused(hub, old);
    await writeFile(file, '{');
    for (let round = 0; round < 2; round += 1) {
      clock.advance(10_000);
      await refused(hub, await token(a, { kid: `x${round}` }));
    }
    await accepted(hub, await token(b, { kid: 'b' }));
    assert.equal(warnings.length, 1, 'a fault is told once');
    await assert.rejects(jwks.reopen(), { code: 'invalid-jwks' });
    await writeFile(file, JSON.stringify({ keys: [jwk(b.publicKey, { kid: 'b' })] }));
    await jwks.reopen();
    assert.equal(jwks.fault, null, 'a reload has read the repaired file');
  });
  it('C-313 H-504 fails for a missing file, invalid JSON and another host', async () => {
    await writeFile(file, '{');
    const missing = pathToFileURL(join(directory, 'none.json')).href;
    for (const uri of [options.uri, missing, 'file://elsewhere/jwks.json']) {
      await assert.rejects(
        openJwks({ ...options, uri }),
        (error) => error instanceof HubgateError && error.code === 'invalid-jwks',
      );
    }
  });
});

import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { createHub, type HubOptions, type LocalUpdate } from '../../../src/hub.ts';
import {
  type Config,
  ConfigError,
  createGateway,
  type GatewayOptions,
  mintToken,
  type MintRequest,
  parseHubfile,
  Secret,
  signingKey,
  signToken,
  type SignTokenOptions,
} from '../../../src/index.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { freePort } from '../../support/free-port.ts';
import { removeWith } from '../../support/temporary-directory.ts';

const key = 'a secret of at least thirty-two bytes';
const issuers = [{ id: 'https://issuer.example', publisher: { key }, subscriber: { key } }];

/** Whether an error is one of ours and says what it is about, without the data itself if that may be a key. */
function about(words: string): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof HubgateError, String(error));
    assert.ok(error.message.includes(words), `${error.message} does not say ${words}`);
    assert.ok(!error.message.includes('thirty-two'), 'the message shows a key');
    return true;
  };
}

describe('createHub with wrong data', () => {
  for (const [words, options] of [
    ['the option issuers', 5],
    ['issuers: expected a list', { issuers: 'x' }],
    ['issuers: expected a list', { issuers: null }],
    ['issuers[0]: expected an object', { issuers: [null] }],
    ['issuers[0].id: expected', { issuers: [{ id: 5 }] }],
    ['issuers[0]: unknown member "role"', { issuers: [{ ...issuers[0], role: 1 }] }],
    ['issuers[0].publisher: expected', { issuers: [{ id: 'https://a', publisher: key }] }],
    ['issuers[0].publisher.key', { issuers: [{ id: 'https://a', publisher: { key: 5 } }] }],
    ['.jwksUri: expected', { issuers: [{ id: 'https://a', publisher: { jwksUri: 5 } }] }],
    ['jwks_uri is', { issuers: [{ id: 'https://a', publisher: { jwksUri: 'nope' } }] }],
    ['legacy: expected an object', { issuers, legacy: null }],
    ['path: expected a path', { issuers, path: 5 }],
    ['heartbeatMs: expected a duration', { issuers, heartbeatMs: -1 }],
    ['maxConnections: expected a whole number', { issuers, maxConnections: 1.5 }],
    ['corsOrigins: expected a list', { issuers, corsOrigins: 'https://a' }],
    ['"nope" is not an origin', { issuers, corsOrigins: ['nope'] }],
    ['"http*://a.example" is not an origin', { issuers, corsOrigins: ['http*://a.example'] }],
    ['profile: expected one of', { issuers, profile: 'foo' }],
    ['did you mean "anonymous"', { issuers, anonymus: true }],
    ['unknown member "outbox"', { issuers, outbox: {} }],
    ['history: expected a directory', { issuers, history: 5 }],
    ['redis: expected an object', { issuers, redis: `redis://:${key}@a` }],
    ['redis.urls: expected a list', { issuers, redis: { urls: `redis://:${key}@a`, stream: 'a' } }],
    ['the URL of a Redis server', { issuers, redis: { urls: [key], stream: 'a' } }],
    ['postgres.url: expected', { issuers, postgres: { url: 5, stream: 'a' } }],
    ['log: expected an object with debug', { issuers, log: {} }],
    ['clock: expected an object with now', { issuers, clock: null }],
  ] as const) {
    it(`says "${words}"`, async () => {
      await assert.rejects(createHub(options as unknown as HubOptions), about(words));
    });
  }

  it('takes null for what has no value, and leaves members out that are undefined', async () => {
    const hub = await createHub({ issuers, cookieName: null, anonymous: undefined } as never);
    await hub.close();
  });

  it('names the wrong member of an update, and publishes nothing', async () => {
    const hub = await createHub({ issuers });
    for (const [words, update] of [
      ['expected an object', undefined],
      ['"topics" is missing', {}],
      ['topics: expected a list', { topics: 'https://a.example/' }],
      ['topics[0]: expected a topic', { topics: [5] }],
      ['data: expected text', { topics: ['https://a.example/'], data: 5 }],
      ['private: expected true or false', { topics: ['https://a.example/'], private: 'yes' }],
      ['unknown member "topic"', { topics: ['https://a.example/'], topic: 1 }],
    ] as const) {
      await assert.rejects(hub.publish(update as unknown as LocalUpdate), about(words));
    }
    assert.equal(hub.lastUpdateId, 'earliest');
    assert.throws(() => Reflect.apply(hub.handle, hub, []), about('handle needs'));
    await hub.close();
  });
});

describe('createGateway with wrong data', () => {
  const config = parseHubfile('http://localhost:18080 {\n\trespond hi\n}\n');
  const [site] = config.sites;
  const [address] = site?.addresses ?? [];
  const [route] = site?.routes ?? [];
  const withSite = (change: object): unknown => ({ ...config, sites: [{ ...site, ...change }] });
  const withHandler = (change: object): unknown =>
    withSite({ routes: [{ ...route, handler: { ...route?.handler, ...change } }] });

  for (const [words, wrong] of [
    ['expected an object', null],
    ['sites: expected a list', { ...config, sites: null }],
    ['"addresses" is missing', { ...config, sites: [{}] }],
    ['addresses[0].port: expected', withSite({ addresses: [{ ...address, port: 99_999 }] })],
    ['routes[0].handler.kind: expected one of', withHandler({ kind: 'x' })],
    ['routes[0].handler.status: expected', withHandler({ status: '9' })],
    ['did you mean "gracePeriodMs"', { ...config, options: { gracePeriod: 1 } }],
  ] as const) {
    it(`says "${words}"`, async () => {
      assert.throws(() => createGateway(wrong as Config), about(words));
      const gateway = createGateway(config);
      for (const load of [gateway.reload, gateway.dryRun, gateway.prepare]) {
        await assert.rejects(load(wrong as Config), about(words));
      }
      await gateway.stop();
    });
  }

  it('refuses routes that contain themselves', () => {
    const handler = { kind: 'handle', routes: [] as unknown[] };
    handler.routes.push({ matcher: null, handler });
    const circular = withSite({ routes: handler.routes }) as Config;
    assert.throws(() => createGateway(circular), about('expected data of at most 300 levels'));
  });

  it('says which option is wrong', () => {
    for (const [words, options] of [
      ['options are not an object', null],
      ['log: expected an object', { log: {} }],
      ['random: expected a function', { random: 5 }],
      ['option "logger" is unknown', { logger: {} }],
    ] as const) {
      assert.throws(
        () => createGateway(config, options as unknown as GatewayOptions),
        about(words),
      );
    }
  });

  it('refuses a wrong argument of purge and of stop', async () => {
    const gateway = createGateway(config);
    await assert.rejects(gateway.purge({} as never, 'here'), about('"kind" is missing'));
    await assert.rejects(gateway.purge({ kind: 'all' }, 'x' as never), about('reach'));
    assert.throws(() => gateway.stop('SIGTERM' as never), about('AbortSignal'));
    assert.equal(gateway.stop(), gateway.stop());
  });

  it('refuses a wrong argument of revoke', async (test) => {
    const storage = await mkdtemp(join(tmpdir(), 'hubgate-data-'));
    removeWith(test, storage);
    const gateway = createGateway(
      parseHubfile(
        `{\n\tstorage ${storage}\n}\nhttp://localhost:${await freePort()} {\n\thub {\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n}\n`,
      ),
    );
    await gateway.start();
    test.after(() => gateway.stop());
    for (const tokenId of [undefined, '', 5, {}]) {
      await assert.rejects(gateway.revoke(tokenId as never, 'here'), about('the jti of a token'));
    }
    for (const reach of [undefined, 'x']) {
      await assert.rejects(gateway.revoke('a', reach as never), about('reach of revoke'));
    }
    assert.equal(await gateway.revoke('a', 'everywhere'), 0);
  });

  it('makes a ConfigError only from problems', () => {
    for (const problems of [undefined, 'text', [null], [{}]]) {
      assert.throws(() => new ConfigError(problems as never), about('list of problems'));
    }
  });

  it('serves a configuration that a program has changed', async () => {
    const secret = parseHubfile(
      `http://localhost:18080 {\n\thub {\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t}\n}\n`,
    );
    const gateway = createGateway({ ...secret, sites: [...secret.sites] });
    await gateway.stop();
  });
});

describe('parseHubfile with wrong data', () => {
  for (const [words, ...given] of [
    ['is a text', null],
    ['expected an object', '', 5],
    ['file: expected', '', { file: 5 }],
    ['env: expected', '', { env: 5 }],
    ['env.A: expected', '', { env: { A: 5 } }],
    ['unknown member "name"', '', { name: 5 }],
  ] as const) {
    it(`says "${words}"`, () => {
      assert.throws(() => Reflect.apply(parseHubfile, null, given), about(words));
    });
  }
});

describe('tokens from wrong data', () => {
  const sign = { iss: 'https://a.example', aud: 'https://a.example/hub', key, publish: '*' };
  const request = {
    key: signingKey(new Secret(key), null),
    issuer: 'https://a.example',
    audience: 'https://a.example/hub',
    issuedAtMs: 0,
    expiresAtMs: 1000,
    detailType: 'hub',
    publish: [{ match: '*', matchType: 'exact' }],
    subscribe: [],
  };

  for (const [words, options] of [
    ['expected an object', null],
    ['"iss" is missing', { ...sign, iss: undefined }],
    ['aud: expected', { ...sign, aud: 5 }],
    ['key: expected', { ...sign, key: 5 }],
    ['publish[0]: expected', { ...sign, publish: [5] }],
    ['ttl: expected', { ...sign, ttl: null }],
    ['ttl 1e+300', { ...sign, ttl: 1e300 }],
    ['profile: expected one of', { ...sign, profile: 'toString' }],
    ['payload: expected data', { ...sign, payload: 10n }],
    ['payload.a[0]: expected data', { ...sign, payload: { a: [10n] } }],
    ['unknown member "exp"', { ...sign, exp: 1 }],
  ] as const) {
    it(`signToken says "${words}"`, async () => {
      await assert.rejects(signToken(options as unknown as SignTokenOptions), about(words));
    });
  }

  for (const [words, options] of [
    ['"key" is missing', { ...request, key: undefined }],
    ['key.algorithm: expected', { ...request, key: { ...request.key, algorithm: 'none' } }],
    ['does not fit ES256', { ...request, key: { ...request.key, algorithm: 'ES256' } }],
    ['issuedAtMs: expected', { ...request, issuedAtMs: NaN }],
    ['publish[0]: "match" is missing', { ...request, publish: [{}] }],
  ] as const) {
    it(`mintToken says "${words}"`, async () => {
      await assert.rejects(mintToken(options as unknown as MintRequest), about(words));
    });
  }

  it('signToken refuses a payload that contains itself', async () => {
    const payload: Record<string, unknown> = {};
    payload['self'] = payload;
    await assert.rejects(signToken({ ...sign, payload } as never), about('at most 300 levels'));
  });

  it('signingKey and Secret say what they need', () => {
    assert.throws(() => Reflect.apply(signingKey, null, [key, null]), about('needs a Secret'));
    assert.throws(() => new Secret(5 as never), about('made from text'));
  });
});

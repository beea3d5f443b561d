import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import {
  DNS_SERVICES,
  type DnsServiceConfig,
  providerFault,
} from '../../../../../src/config/dns-challenge.ts';
import { messageOf } from '../../../../../src/kernel/error.ts';
import { Secret } from '../../../../../src/kernel/secret.ts';
import { acmeDnsProvider } from '../../../../../src/tls/acme/dns/dns-challenge.ts';
import { serviceProvider } from '../../../../../src/tls/acme/dns/services/provider.ts';
import {
  type FakeApi,
  fakeAzure,
  fakeCloudflare,
  fakeDesec,
  fakeDigitalocean,
  fakeGandi,
  fakeGoogle,
  fakeHetzner,
  fakeOvh,
  fakeRoute53,
  FakeZones,
  startDnsService,
} from '../../../../support/dns-services.ts';
import { temporaryDirectory } from '../../../../support/temporary-directory.ts';

const TOKEN = 'token-of-the-test-0123456789';
const { publicKey, privateKey } = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  publicKeyEncoding: { type: 'spki', format: 'pem' },
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
});
const EMAIL = 'gateway@p1.iam.example';
const NAME = '_acme-challenge.example.co.uk';

interface Service {
  readonly api: FakeApi;
  readonly credentials: (url: string, test: TestContext) => Promise<Record<string, string>>;
  /** Whether the API refuses a change of a set that somebody else has changed. */
  readonly comparesSets: boolean;
}

const SERVICES: Readonly<Record<DnsServiceConfig['kind'], Service>> = {
  azure: {
    api: fakeAzure('t1', 'c1', TOKEN),
    credentials: async (url) => ({
      ...{ tenant_id: 't1', client_id: 'c1', client_secret: TOKEN },
      ...{ subscription_id: 's1', resource_group_name: 'g1', authority_host: url },
    }),
    comparesSets: true,
  },
  cloudflare: {
    api: fakeCloudflare(TOKEN),
    credentials: async () => ({ api_token: TOKEN }),
    comparesSets: false,
  },
  desec: {
    api: fakeDesec(TOKEN),
    credentials: async () => ({ token: TOKEN }),
    comparesSets: false,
  },
  digitalocean: {
    api: fakeDigitalocean(TOKEN),
    credentials: async () => ({ auth_token: TOKEN }),
    comparesSets: false,
  },
  gandi: {
    api: fakeGandi(TOKEN),
    credentials: async () => ({ bearer_token: TOKEN }),
    comparesSets: false,
  },
  googleclouddns: {
    api: fakeGoogle(EMAIL, publicKey),
    async credentials(url, test) {
      const file = join(await temporaryDirectory(test), 'key.json');
      const account = { client_email: EMAIL, private_key: privateKey, token_uri: `${url}/token` };
      await writeFile(file, JSON.stringify(account));
      return { gcp_project: 'p1', gcp_application_default: file };
    },
    comparesSets: true,
  },
  hetzner: {
    api: fakeHetzner(TOKEN),
    credentials: async () => ({ api_token: TOKEN }),
    comparesSets: false,
  },
  ovh: {
    api: fakeOvh('app', TOKEN, 'consumer'),
    credentials: async () => ({
      ...{ application_key: 'app', application_secret: TOKEN, consumer_key: 'consumer' },
    }),
    comparesSets: false,
  },
  route53: {
    api: fakeRoute53('AKIDEXAMPLE'),
    credentials: async () => ({ access_key_id: 'AKIDEXAMPLE', secret_access_key: TOKEN }),
    comparesSets: true,
  },
};
const signal = AbortSignal.timeout(60_000);

for (const kind of Object.keys(DNS_SERVICES) as DnsServiceConfig['kind'][]) {
  describe(`the API of ${kind}`, () => {
    it('gets the records of a name and its wildcard at the same time, and loses only what is removed', async (test) => {
      const { provider, zones, config } = await start(test, kind);
      assert.equal(providerFault(config), null);
      zones.set(NAME, ['of somebody else']);
      await Promise.all([
        provider.present(record('one'), signal),
        provider.present(record('two'), signal),
      ]);
      assert.deepEqual(zones.get(NAME).toSorted(), ['of somebody else', 'one', 'two']);
      await provider.present(record('one'), signal);
      assert.equal(zones.get(NAME).length, 3);
      await provider.cleanup(record('one'), signal);
      await provider.cleanup(record('one'), signal);
      assert.deepEqual(zones.get(NAME).toSorted(), ['of somebody else', 'two']);
      zones.set(NAME, ['two']);
      await provider.cleanup(record('two'), signal);
      assert.deepEqual(zones.get(NAME), []);
    });

    it('reports a zone that the account does not have, and credentials that are not accepted, without showing them', async (test) => {
      const { provider, config } = await start(test, kind);
      const name = '_acme-challenge.example.org';
      await assert.rejects(
        provider.present({ ...record('one'), name }, signal),
        /shows no zone of/,
      );
      const wrong = config.credentials.map(({ name: option, value }) => ({
        name: option,
        value: new Secret(
          value
            .reveal()
            .replace(TOKEN, 'wrong-token-0123456789')
            .replace('AKIDEXAMPLE', 'AKIDOTHER'),
        ),
      }));
      if (kind === 'googleclouddns') return;
      const other = serviceProvider({ ...config, credentials: wrong });
      await assert.rejects(other.present(record('one'), signal), (error) => {
        assert.match(messageOf(error), /answers 40[13]/);
        assert.doesNotMatch(messageOf(error), /wrong-token/);
        return true;
      });
    });

    it('reports an API that cannot be reached', async (test) => {
      const { config } = await start(test, kind);
      const nowhere = 'http://127.0.0.1:1';
      const credentials = config.credentials.map(({ name, value }) => ({
        name,
        value: name === 'authority_host' ? new Secret(nowhere) : value,
      }));
      const away = serviceProvider({ ...config, apiUrl: nowhere, credentials });
      await assert.rejects(away.present(record('one'), signal), { code: 'acme-dns-failed' });
    });

    if (!SERVICES[kind].comparesSets) return;
    it('keeps the value that somebody else adds between reading and writing', async (test) => {
      const { provider, zones } = await start(test, kind);
      let others = 0;
      zones.beforeChange = () => {
        others += 1;
        if (others === 1) zones.set(NAME, ['of another node']);
      };
      await provider.present(record('one'), signal);
      assert.deepEqual(zones.get(NAME).toSorted(), ['of another node', 'one']);
      zones.beforeChange = () => {
        others += 1;
        zones.set(NAME, [`value ${String(others)}`]);
      };
      await assert.rejects(provider.present(record('two'), signal), /conflict/);
    });
  });
}

it('the zone with the longest name is used', async (test) => {
  const { config, zones } = await start(test, 'cloudflare', [
    'co.uk',
    'example.co.uk',
    'sub.example.co.uk',
  ]);
  const name = '_acme-challenge.a.sub.example.co.uk';
  await serviceProvider(config).present({ ...record('one'), name }, signal);
  assert.deepEqual(zones.get(name), ['one']);
});

describe('acme-dns', () => {
  it('updates the record of its subdomain, and reports a refusal without the credentials', async (test) => {
    let reply: [status: number, body?: string] = [200];
    const { url, calls } = await startDnsService(test, new FakeZones(), () => reply);
    const provider = acmeDnsProvider({
      kind: 'acme-dns',
      serverUrl: `${url}/`,
      username: new Secret('someone'),
      password: new Secret(TOKEN),
      subdomain: '8e5700ea',
    });
    const present = () => provider.present(record('one'), signal);
    await present();
    const [{ path, headers, json } = assert.fail()] = calls;
    assert.deepEqual([path, json], ['/update', { subdomain: '8e5700ea', txt: 'one' }]);
    assert.deepEqual([headers['x-api-user'], headers['x-api-key']], ['someone', TOKEN]);
    reply = [401, `{"error":"${TOKEN}"}`];
    const message =
      'The API of acme-dns answers 401: username, password and subdomain do not match';
    await assert.rejects(present(), { code: 'acme-dns-failed', message });
    reply = [500, `no ${TOKEN}`];
    await assert.rejects(present(), { message: 'The API of acme-dns answers 500: no [redacted]' });
  });
});

function record(value: string) {
  return { name: NAME, value, ttlSeconds: 20 };
}

async function start(
  test: TestContext,
  kind: DnsServiceConfig['kind'],
  names: readonly string[] = ['example.co.uk'],
) {
  const zones = new FakeZones(...names);
  const { api, credentials } = SERVICES[kind];
  const { url, calls } = await startDnsService(test, zones, api);
  const given = Object.entries(await credentials(url, test));
  const config: DnsServiceConfig = {
    kind,
    credentials: given.map(([name, value]) => ({ name, value: new Secret(value) })),
    apiUrl: url,
  };
  return { provider: serviceProvider(config), zones, config, calls };
}

import assert from 'node:assert/strict';
import { Resolver } from 'node:dns/promises';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePorts, handshake, SharedStorage, startAcmeGateway } from '../support/acme-gateway.ts';
import { fakeCloudflare, FakeZones, startDnsService } from '../support/dns-services.ts';
import { KNOT_KEYS, startKnot } from '../support/knot.ts';
import { hasPebble, type Pebble, startPebble } from '../support/pebble.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const WILDCARD = 'example.com, *.example.com {\n\trespond hello\n}\n';

describe('the DNS challenge (RFC 8555 §8.4)', () => {
  for (const [algorithm, name] of Object.entries(KNOT_KEYS)) {
    it(`rfc2136: gets a wildcard certificate with a signed update to Knot, ${algorithm} (RFC 2136, RFC 8945)`, async (test) => {
      if (!hasPebble(test)) return;
      const knot = await startKnot(test);
      if (knot === null) return;
      const { log, port, pebble } = await start(test, {
        nameServer: knot.address,
        provider: `rfc2136 ${knot.address} {
			key_name ${name}
			key_alg ${algorithm}
			key ${knot.key}
			resolvers ${knot.address}
		}`,
        sites: WILDCARD,
      });
      await log.says('Certificate obtained', 2);
      const root = await pebble.issuingRoot();
      const socket = await handshake(port, 'any.example.com', root);
      assert.equal(socket.getPeerCertificate().subjectaltname, 'DNS:*.example.com');
      socket.destroy();
      (await handshake(port, 'example.com', root)).destroy();
      // What was written is taken away.
      const resolver = new Resolver();
      resolver.setServers([knot.address]);
      await assert.rejects(resolver.resolveTxt('_acme-challenge.example.com'), {
        code: 'ENOTFOUND',
      });
      assert.equal(JSON.stringify(log.lines).includes(knot.key), false);
    });
  }

  it('rfc2136: reports a key that the server does not know, and a wrong secret', async (test) => {
    if (!hasPebble(test)) return;
    const knot = await startKnot(test);
    if (knot === null) return;
    const other = Buffer.alloc(32, 'other').toString('base64');
    for (const [name, key, why] of [
      ['unknown.', knot.key, /BADKEY/],
      [KNOT_KEYS['hmac-sha256'], other, /BADSIG/],
    ] as const) {
      const { log } = await start(test, {
        nameServer: knot.address,
        provider: `rfc2136 ${knot.address} {\n\t\t\tkey_name ${name}\n\t\t\tkey ${key}\n\t\t}`,
        sites: '*.example.com {\n\trespond hello\n}\n',
      });
      const { fields } = await log.says('No certificate');
      assert.match(String(fields['error']), why);
      assert.match(String(fields['fix']), /dns/);
      assert.equal(JSON.stringify(log.lines).includes(key), false);
    }
  });

  it('acme-dns: sends the record to its API, and finds it through a CNAME', async (test) => {
    if (!hasPebble(test)) return;
    const api = await startAcmeDns(test);
    const { log, port, pebble } = await start(test, {
      provider: `acme-dns ${api.url}/ {
			username someone
			password ${api.password}
			subdomain 8e5700ea
		}`,
      sites: '*.example.com {\n\ttls {\n\t\tissuer acme\n\t}\n\trespond hello\n}\n',
      before: async (authority) => {
        api.records = authority.records;
        await tell(authority, 'set-cname', {
          host: '_acme-challenge.example.com.',
          target: '8e5700ea.acme-dns.test.',
        });
      },
    });
    await log.says('Certificate obtained');
    (await handshake(port, 'a.example.com', await pebble.issuingRoot())).destroy();
    assert.deepEqual(api.asked, [
      { user: 'someone', subdomain: '8e5700ea', password: api.password },
    ]);
    assert.equal(JSON.stringify(log.lines).includes(api.password), false);
  });

  it('cloudflare: writes the records of a name and its wildcard by the API, and removes them', async (test) => {
    if (!hasPebble(test)) return;
    const token = 'token-of-the-account-0123456789';
    const zones = new FakeZones('example.com');
    const answer = fakeCloudflare(token);
    const name = '_acme-challenge.example.com';
    let authority: Pick<Pebble, 'records'> = { records: '' };
    let copied: Promise<unknown> = Promise.resolve();
    const { url } = await startDnsService(test, zones, (call, account) => {
      const before = account.get(name);
      const reply = answer(call, account);
      for (const value of account.get(name).filter((each) => !before.includes(each))) {
        copied = copied.then(() => tell(authority, 'set-txt', { host: `${name}.`, value }));
      }
      return reply;
    });
    const { log, port, pebble } = await start(test, {
      provider: `cloudflare ${token} {\n\t\t\tapi_url ${url}\n\t\t}`,
      sites: `${WILDCARD}api.example.com {\n\trespond api\n}\n`,
      before: async (started) => {
        authority = started;
      },
    });
    await log.says('Certificate obtained', 2);
    await copied;
    const root = await pebble.issuingRoot();
    (await handshake(port, 'any.example.com', root)).destroy();
    (await handshake(port, 'example.com', root)).destroy();
    // A site without tls that the wildcard covers needs no order of its own, as in Caddy.
    const socket = await handshake(port, 'api.example.com', root);
    assert.equal(socket.getPeerCertificate().subjectaltname, 'DNS:*.example.com');
    socket.destroy();
    assert.equal(pebble.orders(), 2);
    assert.deepEqual(zones.get(name), []);
    assert.equal(JSON.stringify(log.lines).includes(token), false);
  });

  it('exec: runs a program of the operator, for one site, with only the environment that it is given', async (test) => {
    if (!hasPebble(test)) return;
    const directory = await temporaryDirectory(test);
    const program = join(directory, 'hook');
    const seen = join(directory, 'seen');
    writeFileSync(
      program,
      `#!${process.execPath}
const { appendFileSync } = require('node:fs');
const { HUBGATE_DNS_ACTION: action, HUBGATE_DNS_NAME: name, HUBGATE_DNS_VALUE: value } = process.env;
appendFileSync(process.argv[2], JSON.stringify({ ...process.env, args: process.argv.slice(3) }) + '\\n');
fetch(process.env.RECORDS + (action === 'present' ? '/set-txt' : '/clear-txt'), {
  method: 'POST', body: JSON.stringify({ host: name + '.', value }),
});
`,
    );
    chmodSync(program, 0o700);
    process.env['GATEWAY_SECRET'] = 'not for hooks';
    test.after(() => delete process.env['GATEWAY_SECRET']);
    let records = '';
    const { log, port, pebble } = await start(test, {
      provider: null,
      before: async (authority) => {
        records = authority.records;
      },
      sites: () => `*.example.com {
	tls {
		dns exec ${program} ${seen} "two words" $HOME {
			env RECORDS ${records}
			env API_TOKEN s3cret-of-the-provider
		}
		dns_ttl 30s
		propagation_timeout off
	}
	respond hello
}
`,
    });
    await log.says('Certificate obtained');
    (await handshake(port, 'a.example.com', await pebble.issuingRoot())).destroy();
    const [first, second] = readFileSync(seen, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(first.args, ['two words', '$HOME']);
    assert.equal(first.API_TOKEN, 's3cret-of-the-provider');
    assert.equal(first.GATEWAY_SECRET, undefined);
    assert.deepEqual(
      [first.HUBGATE_DNS_ACTION, first.HUBGATE_DNS_NAME, first.HUBGATE_DNS_TTL],
      ['present', '_acme-challenge.example.com', '30'],
    );
    assert.deepEqual(
      [second.HUBGATE_DNS_ACTION, second.HUBGATE_DNS_VALUE],
      ['cleanup', first.HUBGATE_DNS_VALUE],
    );
    assert.equal(JSON.stringify(log.lines).includes('s3cret'), false);
  });

  it('exec: logs the output of a program that fails, without its secrets and truncated', async (test) => {
    if (!hasPebble(test)) return;
    const directory = await temporaryDirectory(test);
    const program = join(directory, 'hook');
    writeFileSync(
      program,
      '#!/bin/sh\necho "denied for $API_TOKEN"\nyes | head -c 100000\nexit 3\n',
    );
    chmodSync(program, 0o700);
    const { log } = await start(test, {
      provider: `exec ${program} {\n\t\t\tenv API_TOKEN s3cret-of-the-provider\n\t\t}`,
      sites: '*.example.com {\n\trespond hello\n}\n',
    });
    const { fields } = await log.says('No certificate');
    assert.match(String(fields['error']), /ended with 3, and said denied for \[redacted\]/);
    assert.ok(String(fields['error']).length <= 300);
    assert.equal(JSON.stringify(log.lines).includes('s3cret'), false);
  });

  it('exec: kills a program that does not exit, and the processes that it has started', async (test) => {
    if (!hasPebble(test)) return;
    const directory = await temporaryDirectory(test);
    const program = join(directory, 'hook');
    const started = join(directory, 'started');
    writeFileSync(program, `#!/bin/sh\nsleep 300 &\necho $! > ${started}\nwait\n`);
    chmodSync(program, 0o700);
    const { log } = await start(test, {
      provider: `exec ${program} {\n\t\t\ttimeout 3s\n\t\t}`,
      sites: '*.example.com {\n\trespond hello\n}\n',
    });
    const { fields } = await log.says('No certificate');
    assert.match(String(fields['error']), /did not end within 3000 ms/);
    const status = `/proc/${readFileSync(started, 'utf8').trim()}/stat`;
    const isGone = (): boolean => !existsSync(status) || / Z /.test(readFileSync(status, 'utf8'));
    // A process that was killed goes a moment later; of its own accord, this one would stay for five minutes.
    for (let asked = 0; asked < 2000 && !isGone(); asked += 1) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.ok(isGone(), 'it is gone');
  });

  it('removes a record that does not become visible, without asking the authority to validate it', async (test) => {
    if (!hasPebble(test)) return;
    const directory = await temporaryDirectory(test);
    const program = join(directory, 'hook');
    const seen = join(directory, 'seen');
    writeFileSync(program, `#!/bin/sh\necho $HUBGATE_DNS_ACTION >> ${seen}\n`);
    chmodSync(program, 0o700);
    let server = '';
    const { log, pebble } = await start(test, {
      provider: null,
      before: async ({ nameServer }) => {
        server = nameServer;
      },
      sites: () =>
        `*.example.com {\n\ttls {\n\t\tdns exec ${program}\n\t\tresolvers ${server}\n\t\tpropagation_timeout 200ms\n\t}\n}\n`,
    });
    const { fields } = await log.says('No certificate');
    assert.match(
      String(fields['error']),
      /TXT record of _acme-challenge\.example\.com is not visible/,
    );
    assert.equal(readFileSync(seen, 'utf8'), 'present\ncleanup\n');
    assert.doesNotMatch(pebble.output(), /Pulled a task/);
  });
});

interface Start {
  /** Of `acme_dns`. */
  readonly provider: string | null;
  readonly sites: string | (() => string);
  readonly nameServer?: string;
  readonly before?: (pebble: Pebble) => Promise<void>;
}

/** A gateway that no authority reaches by any port. */
async function start(test: TestContext, { provider, sites, nameServer, before }: Start) {
  const ports = await freePorts();
  const unreached = await freePorts();
  const pebble = await startPebble(test, {
    ...unreached,
    ...(nameServer === undefined ? {} : { nameServer }),
  });
  await before?.(pebble);
  const acme = provider === null ? '' : `\nacme_dns ${atResolvers(provider, pebble)}`;
  const { log } = await startAcmeGateway({
    ...ports,
    storage: new SharedStorage(test),
    acme: `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}${acme}`,
    sites: typeof sites === 'string' ? sites : sites(),
  });
  return { log, pebble, port: ports.httpsPort };
}

/** This machine's resolver knows nothing of the test. */
function atResolvers(provider: string, { nameServer }: Pebble): string {
  return provider.includes('resolvers')
    ? provider
    : provider.replace('{', `{\n\t\t\tresolvers ${nameServer}`);
}

async function tell({ records }: Pick<Pebble, 'records'>, what: string, body: object) {
  const answer = await fetch(`${records}/${what}`, { method: 'POST', body: JSON.stringify(body) });
  assert.equal(answer.status, 200);
}

/** The update API of acme-dns, which keeps its records in pebble's name server. */
async function startAcmeDns(test: TestContext) {
  const api = {
    url: '',
    records: '',
    password: 'pass-of-the-account-40-characters-long--',
    asked: [] as object[],
  };
  const update = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { subdomain, txt } = JSON.parse(body);
    const { 'x-api-user': user, 'x-api-key': password } = request.headers;
    api.asked.push({ user, password, subdomain });
    await tell(api, 'set-txt', { host: `${subdomain}.acme-dns.test.`, value: txt });
    response.end(JSON.stringify({ txt }));
  };
  const server = createServer((request, response) => void update(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  test.after(() => server.close());
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  api.url = `http://127.0.0.1:${address.port}`;
  return api;
}

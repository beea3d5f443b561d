import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { parseHubfile } from '../support/installed-package.ts';
import { freePorts, handshake, SharedStorage, startAcmeGateway } from '../support/acme-gateway.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { hasPebble, startPebble } from '../support/pebble.ts';
import { programPath } from '../support/program.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const EXTERNAL_ACCOUNT = {
  keyId: 'kid-1',
  macKey: 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W',
};

describe('issuers of a site', () => {
  it('are asked one after the other, each with its own account, root and challenges', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const gone = `https://127.0.0.1:${await freePort()}/dir`;
    const pebble = await startPebble(test, { ...ports, externalAccount: EXTERNAL_ACCOUNT });
    const { keyId, macKey } = EXTERNAL_ACCOUNT;
    const { log } = await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: `acme_ca https://127.0.0.1:${await freePort()}/others`,
      sites: `a.example.com {
	tls {
		issuer acme ${gone} {
			trusted_roots ${pebble.rootFile}
		}
		issuer acme {
			dir ${pebble.directory}
			email ops@example.com
			eab ${keyId} ${macKey}
			trusted_roots ${pebble.rootFile}
			disable_tlsalpn_challenge
		}
		issuer internal
	}
	respond hello
}
`,
    });
    const { fields } = await log.says(
      'An authority issued no certificate; hubgate asks the next one',
    );
    assert.equal(`https://${String(fields['authority'])}/dir`, gone);
    await log.says('Certificate obtained');
    (await handshake(ports.httpsPort, 'a.example.com', await pebble.issuingRoot())).destroy();
    assert.doesNotMatch(pebble.output(), /tls-alpn-01 challenge/);
    assert.equal(JSON.stringify(log.lines).includes(macKey), false);
  });

  it('may end with the local authority, whose certificate is available at once', async (test) => {
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const { log, certificates: listed } = await startAcmeGateway({
      ...ports,
      storage,
      acme: 'local_certs',
      sites: `a.localhost {
	tls {
		issuer acme https://127.0.0.1:${await freePort()}/dir
		issuer internal
	}
	respond hello
}
`,
    });
    await log.says('Certificate obtained');
    (await handshake(ports.httpsPort, 'a.localhost', await storage.localRoot())).destroy();
    const certificates = await listed();
    assert.ok(
      certificates.some(
        ({ names, authority }) => names[0] === 'a.localhost' && authority === 'local',
      ),
    );
  });

  it('accept the same options as in Caddy 2, with the same meaning', async (test) => {
    const caddy = programPath(test, 'caddy');
    if (caddy === null) return;
    const directory = await temporaryDirectory(test);
    const { file: rootFile } = createClientAuthority(directory, 'root');
    const text = `a.example.com {
	tls {
		issuer acme {
			dir https://one.example/dir
			email ops@example.com
			eab kid c2VjcmV0
			disable_http_challenge
		}
		issuer acme https://two.example/dir {
			trusted_roots ${rootFile}
			disable_tlsalpn_challenge
		}
		issuer internal
	}
}
`;
    const file = join(directory, 'Caddyfile');
    await writeFile(file, text);
    const args = ['adapt', '--adapter', 'caddyfile', '--config', file];
    const { stdout } = await promisify(execFile)(caddy, args, {
      env: { ...process.env, HOME: '/nonexistent' },
    });
    const [policy] = JSON.parse(stdout).apps.tls.automation.policies;
    const [site] = parseHubfile(text, { env: {} }).sites;
    assert.ok(site?.tls.source.kind === 'issuers');
    assert.deepEqual(
      site.tls.source.issuers.map((each) =>
        each.kind === 'internal'
          ? { module: 'internal' }
          : {
              module: 'acme',
              ca: each.directory,
              ...(each.email === null ? {} : { email: each.email }),
              ...(each.externalAccount === null
                ? {}
                : {
                    external_account: {
                      key_id: each.externalAccount.keyId,
                      mac_key: each.externalAccount.macKey.reveal(),
                    },
                  }),
              ...(each.rootFile === null ? {} : { trusted_roots_pem_files: [each.rootFile] }),
              challenges: each.challenges?.includes('http-01')
                ? { 'tls-alpn': { disabled: true } }
                : { http: { disabled: true } },
            },
      ),
      policy.issuers,
    );
  });
});

import { directiveTable } from '../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ConfigError, describeProblem, type Problem } from '../../src/config/problem.ts';
import { adaptCaddyfile, toLeaveOut } from '../../src/hubfile/caddyfile.ts';
import { diskIo } from '../../src/hubfile/disk.ts';
import { formatHubfile, hubfileText } from '../../src/hubfile/format.ts';
import { loadConfig } from '../../src/load-config.ts';
import { createCertificateFiles, withFiles } from '../support/certificate-files.ts';
import { programPath } from '../support/program.ts';

/*
 * <case>.caddyfile is adapted in the environment below. Beside it stands what must come out:
 * <case>.hubfile, which loads, and <case>.err, what is told besides, if there is anything to tell.
 * UPDATE_GOLDEN=1 writes these files again; look at every one of them before you keep it.
 */
const here = dirname(fileURLToPath(import.meta.url));
const update = process.env['UPDATE_GOLDEN'] === '1';
process.chdir(here);
// A gateway of this machine may have left histories where the default storage is.
process.env['XDG_DATA_HOME'] = join(here, 'no-storage');

const env = {
  CF_API_TOKEN: 'token-of-cloudflare',
  MERCURE_PUBLISHER_JWT_KEY: 'an-excellent-secret-of-32-bytes-or-more',
  MERCURE_SUBSCRIBER_JWT_KEY: 'another-excellent-secret-of-32-bytes',
};
const { root, site } = createCertificateFiles();
const logs = mkdtempSync(join(tmpdir(), 'hubgate-caddyfile-'));
after(() => rmSync(logs, { recursive: true, force: true }));
const io = withFiles(diskIo(env), {
  '/etc/ssl/devices-ca.pem': root,
  '/etc/ssl/server.pem': site.cert,
  '/etc/ssl/server.key': site.key,
});

/** What Debian's Caddy 2.6 refuses of them, and why. */
const NOT_OF_CADDY_2_6: Readonly<Record<string, string>> = {
  'cache-handler': 'needs a plug-in',
  'api-platform': 'needs the reference hub',
  'behind-a-balancer': 'trusted_proxies came with 2.6.3',
  'franken-like': 'needs FrankenPHP',
  'heredocs-and-quotes': 'heredocs came with 2.7',
  'named-routes': 'invoke came with 2.7',
  'named-by-dns': 'persist_config came with 2.7',
  'rate-limit-plugin': 'needs a plug-in',
  'reference-hub': 'needs the reference hub',
  'single-sign-on-plugin': 'needs a plug-in',
  symfony: 'needs the reference hub',
  'wildcard-dns': 'needs a plug-in',
};

const cases = readdirSync('.')
  .filter((name) => name.endsWith('.caddyfile'))
  .map((name) => name.slice(0, -'.caddyfile'.length));

function problemsOf(text: string, file: string): readonly Problem[] {
  const read = (path: string): Uint8Array =>
    path === join(here, file) ? Buffer.from(text) : io.read(path);
  try {
    return loadConfig(file, { ...io, read }, 'hubfile').warnings;
  } catch (thrown) {
    if (thrown instanceof ConfigError) return thrown.problems;
    throw thrown;
  }
}

function compare(file: string, text: string): void {
  if (update) {
    if (text === '') rmSync(file, { force: true });
    else writeFileSync(file, text);
  }
  assert.equal(text, existsSync(file) ? readFileSync(file, 'utf8') : '');
}

describe('a Caddyfile that is converted to a Hubfile', () => {
  for (const name of cases) {
    const file = `${name}.caddyfile`;

    it(`${name}: loads, and everything left out is reported`, () => {
      const caddyfile = readFileSync(file, 'utf8');
      const { text, leftOut, notes } = adaptCaddyfile(
        caddyfile,
        file,
        io,
        directiveTable,
        (changed) => problemsOf(changed, file),
      );
      const told = [
        ...notes.map((problem) => describeProblem(problem)),
        ...leftOut.map((problem) => describeProblem(problem, 'left out')),
      ];
      compare(`${name}.hubfile`, text);
      compare(`${name}.err`, told.map((each) => `${each}\n`).join(''));
      assert.equal(formatHubfile(text), text);
      const errors = problemsOf(text, file).filter(({ severity }) => severity === 'error');
      assert.deepEqual(errors, []);
    });

    it(`${name}: is accepted by Caddy 2.6, or says why not`, (test) => {
      const caddy = programPath(test, 'caddy');
      if (caddy === null) return;
      const text = readFileSync(file, 'utf8').replaceAll(
        '/etc/ssl/devices-ca.pem',
        join(logs, 'ca.pem'),
      );
      writeFileSync(join(logs, 'ca.pem'), root);
      writeFileSync(join(logs, 'Caddyfile'), text);
      cpSync('imported', join(logs, 'imported'), { recursive: true });
      const args = ['adapt', '--adapter', 'caddyfile', '--config', join(logs, 'Caddyfile')];
      const { status, stderr } = spawnSync(caddy, args, { encoding: 'utf8' });
      const reason = NOT_OF_CADDY_2_6[name];
      assert.equal(status === 0, reason === undefined, stderr);
    });
  }
});

describe('a hub whose keys are not set on this machine', () => {
  it('is kept, with a note', () => {
    const hub = 'mercure {\n\t\tpublisher_jwt {env.NOT_SET_HERE}\n\t\tanonymous\n\t}';
    const { text, leftOut, notes } = adaptCaddyfile(
      `a.localhost {\n\t${hub}\n}\n`,
      'Caddyfile',
      io,
      directiveTable,
      (changed) => problemsOf(changed, 'Caddyfile'),
    );
    assert.match(text, /^\t\tpublisher_jwt \{env\.NOT_SET_HERE\}$/m);
    assert.deepEqual(leftOut, []);
    assert.ok(notes.some(({ message }) => /NOT_SET_HERE is not set/.test(message)));
  });
});

describe('an error from the golden Hubfiles', () => {
  const folder = join(here, '../hubfile');
  const wrong = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (name) =>
      name.endsWith('.hubfile') && existsSync(join(folder, name.replace(/hubfile$/, 'err'))),
  );

  it('is left out, so that the rest loads, or the file is rejected as a whole', () => {
    assert.ok(wrong.length > 50, `${wrong.length} files`);
    let fixed = 0;
    for (const name of wrong) {
      const text = hubfileTextOr(join(folder, name));
      if (text === null) continue;
      try {
        const adapted = adaptCaddyfile(text, 'Caddyfile', io, directiveTable, (changed) =>
          problemsOf(changed, 'Caddyfile'),
        );
        const errors = toLeaveOut(problemsOf(adapted.text, 'Caddyfile'));
        assert.deepEqual(
          errors.map(({ message }) => message),
          [],
          `${name}\n${adapted.text}`,
        );
        fixed += 1;
      } catch (thrown) {
        if (!(thrown instanceof ConfigError)) throw thrown;
      }
    }
    assert.ok(fixed > wrong.length / 2, `${fixed} of ${wrong.length}`);
  });
});

function hubfileTextOr(file: string): string | null {
  try {
    return hubfileText(readFileSync(file), file);
  } catch (thrown) {
    if (thrown instanceof ConfigError) return null;
    throw thrown;
  }
}

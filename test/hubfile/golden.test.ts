import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultSite } from '../../src/config/shape-config.ts';
import { defaultDiscovery, defaultHub } from '../../src/config/shape-hub.ts';
import { defaultOptions } from '../../src/config/shape-options.ts';
import { ConfigError, describeProblem } from '../../src/config/problem.ts';
import { diskIo } from '../../src/hubfile/disk.ts';
import { formatHubfile } from '../../src/hubfile/format.ts';
import { loadConfig } from '../../src/load-config.ts';
import { createCertificateFiles, withFiles } from '../support/certificate-files.ts';
import { defaultReverseProxy } from '../../src/proxy/proxy-config.ts';

/*
 * <topic>/<case>.hubfile is read with the environment of env.json. Beside it stands what must come
 * out: <case>.json, the configuration (only what differs from the defaults) and its warnings;
 * <case>.err, the complete diagnostics; or in format/, <case>.fmt, the formatted text.
 * Certificates that cases name are made for each run; no key is kept here.
 * UPDATE_GOLDEN=1 writes these files again; look at every one of them before you keep it.
 */
const here = dirname(fileURLToPath(import.meta.url));
const update = process.env['UPDATE_GOLDEN'] === '1';
const env: Record<string, string> = JSON.parse(readFileSync(join(here, 'env.json'), 'utf8'));
process.chdir(here);
// A gateway of this machine may have left histories where the default storage is.
process.env['XDG_DATA_HOME'] = join(here, 'no-storage');
const { root, site, other } = createCertificateFiles();
const io = withFiles(diskIo(env), {
  '/etc/ca.pem': root,
  '/etc/clients.pem': root,
  'cert.pem': site.cert,
  [`${env['APP']}.key`]: site.key,
  'files/site.crt': site.cert,
  'files/site.key': site.key,
  'files/other.key': other.key,
  '/etc/hubgate/broken.json': '{"keys": 1}',
});

for (const topic of readdirSync('.', { withFileTypes: true })) {
  if (!topic.isDirectory()) continue;
  describe(`Hubfile, ${topic.name}`, () => {
    for (const file of readdirSync(topic.name).filter((name) => name.endsWith('.hubfile'))) {
      const path = `${topic.name}/${file}`;
      const stem = path.slice(0, -'.hubfile'.length);
      it(stem, () => {
        const result = topic.name === 'format' ? formatted(path) : adapted(path);
        compare(stem, result);
      });
    }
  });
}

interface Result {
  readonly extension: 'json' | 'err' | 'fmt';
  readonly text: string;
}

function compare(stem: string, { extension, text }: Result): void {
  const expected = `${stem}.${extension}`;
  if (update) {
    for (const other of ['json', 'err', 'fmt']) rmSync(`${stem}.${other}`, { force: true });
    writeFileSync(expected, text);
  }
  assert.ok(existsSync(expected), `${stem} gave ${extension}, which was not expected:\n${text}`);
  assert.equal(text, readFileSync(expected, 'utf8'));
}

function formatted(path: string): Result {
  const text = formatHubfile(readFileSync(path, 'utf8'), path);
  assert.equal(formatHubfile(text, path), text, 'formatting twice changes nothing more');
  return { extension: 'fmt', text };
}

function adapted(path: string): Result {
  try {
    const { written, warnings } = loadConfig(path, io);
    const { options, sites } = written;
    const shown = {
      ...difference({ options }, { options: defaultOptions }),
      sites: sites.map((site) => difference(site, defaultSite)),
      ...(warnings.length > 0 ? { warnings: warnings.flatMap(lines) } : {}),
    };
    return { extension: 'json', text: `${JSON.stringify(shown, null, 2)}\n` };
  } catch (thrown) {
    if (!(thrown instanceof ConfigError)) throw thrown;
    return { extension: 'err', text: `${thrown.problems.flatMap(lines).join('\n')}\n` };
  }
}

function lines(problem: Parameters<typeof describeProblem>[0]): string[] {
  return describeProblem(problem).split('\n');
}

/** Only the members that are not as the defaults have them, with secrets redacted. */
function difference(value: object, defaults: object): object {
  const members = Object.entries(value).flatMap(([name, member]): [string, unknown][] => {
    const standard: unknown = Reflect.get(defaults, name);
    if (JSON.stringify(member) === JSON.stringify(standard)) return [];
    return [[name, shown(member, standard ?? standardOf(name))]];
  });
  return Object.fromEntries(members);
}

function standardOf(name: string): object | undefined {
  if (name === 'hub') return defaultHub;
  return name === 'discovery' ? defaultDiscovery : undefined;
}

function shown(value: unknown, standard: unknown): unknown {
  if (typeof value !== 'object' || value === null || 'reveal' in value) return value;
  if (Array.isArray(value)) return value.map((item) => shown(item, undefined));
  if ('kind' in value && value.kind === 'reverse_proxy') {
    return { kind: value.kind, ...difference(value, defaultReverseProxy) };
  }
  const known = typeof standard === 'object' && standard !== null && !Array.isArray(standard);
  return known
    ? difference(value, standard)
    : Object.fromEntries(
        Object.entries(value).map(([name, member]) => [name, shown(member, undefined)]),
      );
}

// Packs the executable for Debian and Ubuntu: with the units of deploy/systemd, a user of its own, a first
// Hubfile, the documents and completion for the shell. dpkg-deb of Debian writes it.
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { root } from '../install.mjs';

const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };
/** Node's programs are built against it. */
const LIBC = '2.28';

/**
 * @param {{ executable: string, packageDirectory: string, cpu: 'x64' | 'arm64', directory: string, work: string }} what
 *   `packageDirectory` is that of the npm package; `work` is for intermediate files
 * @returns {string} the path of the package, in `directory`
 */
export function debianPackage({ executable, packageDirectory, cpu, directory, work }) {
  const { version, description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const architecture = ARCHITECTURES[cpu];
  const tree = join(work, 'debian');
  const put = (path, text, mode = 0o644) => {
    const target = join(tree, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
    chmodSync(target, mode);
  };
  const copy = (from, path) => put(path, readFileSync(join(root, from), 'utf8'));

  mkdirSync(join(tree, 'usr/bin'), { recursive: true });
  copyFileSync(executable, join(tree, 'usr/bin/hubgate'));
  chmodSync(join(tree, 'usr/bin/hubgate'), 0o755);
  for (const unit of ['hubgate.service', 'hubgate@.service', 'hubgate.socket']) {
    copy(`deploy/systemd/${unit}`, `lib/systemd/system/${unit}`);
  }
  copy('scripts/executable/Hubfile', 'etc/hubgate/Hubfile');
  copy('dist/LICENSES.txt', 'usr/share/doc/hubgate/LICENSES.txt');
  copy('LICENSE', 'usr/share/doc/hubgate/copyright');
  for (const path of documentsIn(packageDirectory)) {
    put(`usr/share/doc/hubgate/${path}`, readFileSync(join(packageDirectory, path)));
  }
  put('usr/share/bash-completion/completions/hubgate', completion());

  put('DEBIAN/control', control({ version, description, architecture }));
  put('DEBIAN/conffiles', '/etc/hubgate/Hubfile\n');
  for (const script of ['postinst', 'prerm', 'postrm']) {
    put(`DEBIAN/${script}`, readFileSync(join(root, 'scripts/executable', script), 'utf8'), 0o755);
  }
  const target = join(directory, `hubgate_${version}_${architecture}.deb`);
  run('dpkg-deb', ['--root-owner-group', '-Zxz', '-z1', '--build', tree, target]);
  return target;
}

/** The paths of the documents, of what they link to, and of the examples. */
function documentsIn(packageDirectory) {
  const all = readdirSync(packageDirectory, { recursive: true, withFileTypes: true });
  return all
    .filter((entry) => entry.isFile())
    .map((entry) => relative(packageDirectory, join(entry.parentPath, entry.name)))
    .filter((path) =>
      /^(?:(?:README|CHANGELOG)\.md|Hubfile\.example|(?:docs|deploy|examples|ops)\/.*)$/.test(path),
    );
}

function control({ version, description, architecture }) {
  const [short = '', ...rest] = description.split(': ');
  return `Package: hubgate
Version: ${version}
Architecture: ${architecture}
Maintainer: hubgate <hubgate@localhost>
Section: httpd
Priority: optional
Depends: libc6 (>= ${LIBC}), adduser
Recommends: ca-certificates, systemd
Description: ${short}
 ${rest.join(': ')}
`;
}

function completion() {
  const program = join(root, 'dist/cli/main.js');
  return run(process.execPath, [program, 'completion', 'bash']);
}

function run(program, args) {
  const { status, error, stdout } = spawnSync(program, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`${program} has failed`);
  return stdout;
}

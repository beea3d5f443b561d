import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import { programPath } from '../support/program.ts';
import { runClient, startRecipeGateway } from '../support/recipe-gateway.ts';

/*
 * rclone of Debian, as WebDAV's server (`rclone serve webdav`) and as its client.
 */
const LARGE_MIB = 100;
const MIB = 1024 * 1024;

const ODD_NAMES = [
  'ordinary.txt',
  ' leading space.txt',
  'ä ö ü ß é.txt',
  'e\u0301 decomposed.txt',
  '100%.txt',
  '%2e%2e%2f.txt',
  'a+b&c=d;e@f,g!$.txt',
  'query?and#fragment.txt',
  `quotes ' and ".txt`,
  'back\\slash|pipe^caret`tick.txt',
  '[brackets]{braces}<angles>.txt',
  'a:b*c~d.txt',
  '日本語 🎉.txt',
  '..dots',
  '.hidden',
  'tab\tand\nnew line.txt',
];

interface Dav {
  readonly place: string;
  /** What the server has. */
  readonly served: string;
  rclone(...args: readonly string[]): Promise<string>;
}

async function webdav(test: TestContext, version: readonly string[]): Promise<Dav | null> {
  const rclone = programPath(test, 'rclone');
  if (rclone === null) return null;
  const place = applicationDirectory(test);
  const served = join(place, 'served');
  mkdirSync(served);
  const port = await freePort();
  const file = join(place, 'rclone.conf');
  writeFileSync(file, '');
  const config = ['--config', file];
  const args = [...config, 'serve', 'webdav', served, '--addr', `127.0.0.1:${port}`];
  await serveApplication(test, rclone, args, { port, cwd: place });
  const { origin, authority } = await startRecipeGateway(test, 'rclone', port);
  const remote = ['--webdav-url', origin, '--webdav-vendor', 'other', '--ca-cert', authority];
  return {
    place,
    served,
    rclone: (...rest) =>
      runClient(rclone, [...config, ...remote, ...version, '--retries', '1', ...rest], {
        cwd: place,
      }),
  };
}

/** Files, each with its name as its text. */
function tree(path: string): void {
  for (const folder of ['', 'ä folder', 'folder/deep #1/100%']) {
    mkdirSync(join(path, folder), { recursive: true });
    for (const name of ODD_NAMES) writeFileSync(join(path, folder, name), `${folder}: ${name}\n`);
  }
  writeFileSync(join(path, 'empty'), '');
}

const filesBelow = (path: string): readonly string[] =>
  readdirSync(path, { recursive: true }).map(String).sort();

describe('rclone over WebDAV', () => {
  for (const [name, version] of [
    ['HTTP/1.1', ['--disable-http2']],
    ['HTTP/2.0', []],
  ] as const) {
    it(`copies, checks, synchronises and moves files with unusual names, over ${name}`, async (test) => {
      const dav = await webdav(test, version);
      if (dav === null) return;
      const { place, served, rclone } = dav;
      const exchange = await rclone('lsf', ':webdav:', '-vv', '--dump', 'headers');
      assert.ok(exchange.includes(`${name} 207`), exchange);
      const mine = join(place, 'mine');
      tree(mine);
      await rclone('copy', mine, ':webdav:all');
      await rclone('check', '--download', mine, ':webdav:all');
      assert.deepEqual(filesBelow(join(served, 'all')), filesBelow(mine));

      // On the server, each by a Destination.
      await rclone('copyto', ':webdav:all/100%.txt', ':webdav:all/200% ä#?.txt');
      await rclone('moveto', ':webdav:all/日本語 🎉.txt', ':webdav:all/ä folder/moved 🎉.txt');
      const moved = readFileSync(join(served, 'all/ä folder/moved 🎉.txt'), 'utf8');
      assert.equal(moved, ': 日本語 🎉.txt\n');
      assert.equal(readFileSync(join(served, 'all/200% ä#?.txt'), 'utf8'), ': 100%.txt\n');
      await rclone('move', ':webdav:all/folder', ':webdav:other');
      assert.ok(filesBelow(join(served, 'other')).includes('deep #1/100%/100%.txt'));

      rmSync(join(mine, 'ä folder'), { recursive: true });
      writeFileSync(join(mine, 'ordinary.txt'), 'changed, and longer than before\n');
      await rclone('sync', mine, ':webdav:all');
      await rclone('check', '--download', mine, ':webdav:all');
      const back = join(place, 'back');
      await rclone('sync', ':webdav:all', back);
      assert.deepEqual(filesBelow(back), filesBelow(mine));
      await rclone('purge', ':webdav:all');
      assert.deepEqual(readdirSync(served), ['other']);
    });

    it(`uploads and downloads a file of ${LARGE_MIB} MiB, and parts of it, over ${name}`, async (test) => {
      const dav = await webdav(test, version);
      if (dav === null) return;
      const { place, served, rclone } = dav;
      const sent = randomBytes(LARGE_MIB * MIB);
      writeFileSync(join(place, 'large.bin'), sent);
      await rclone('copyto', 'large.bin', ':webdav:large.bin');
      assert.ok(readFileSync(join(served, 'large.bin')).equals(sent));
      await rclone('copyto', ':webdav:large.bin', 'back.bin');
      assert.ok(readFileSync(join(place, 'back.bin')).equals(sent));
      await rclone('copyto', ':webdav:large.bin', ':webdav:copy.bin');
      assert.ok(readFileSync(join(served, 'copy.bin')).equals(sent));
      const part = await rclone(
        'cat',
        ':webdav:large.bin',
        '--offset',
        String(50 * MIB),
        '--count',
        '9',
      );
      const wanted = sent.subarray(50 * MIB, 50 * MIB + 9).toString('utf8');
      assert.equal(part, wanted);
    });
  }
});

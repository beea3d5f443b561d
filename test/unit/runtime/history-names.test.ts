import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { loadConfig } from '../../../src/load-config.ts';
import { historyNames, keepHistoryNames, projectOf } from '../../../src/runtime/history-names.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('histories of projects that share a storage', () => {
  it('can be left over from a project that used them, and do not affect others', async (test) => {
    const place = await temporaryDirectory(test);
    const project = (name: string) => projectIn(place, name);
    const [shop, blog] = [project('shop'), project('blog')];
    assert.deepEqual(shop.load('shop.localhost'), []);
    shop.run('shop.localhost');
    assert.deepEqual(blog.load('blog.localhost'), []);
    blog.run('blog.localhost');
    assert.deepEqual(blog.load('blog.localhost'), []);
    const [warning = ''] = shop.load('store.localhost');
    assert.match(warning, /hub http:\/\/shop\.localhost:? is no longer configured/);
    assert.ok(warning.includes(join(place, 'storage', 'history')), warning);
  });

  it('are listed with the other project that uses them, as long as it exists', async (test) => {
    const place = await temporaryDirectory(test);
    const [shop, copy] = [projectIn(place, 'shop'), projectIn(place, 'copy')];
    shop.run('a.localhost');
    const [warning = ''] = copy.load('a.localhost');
    assert.match(
      warning,
      /^the history of http:\/\/a\.localhost:? in .* also belongs to .*shop\/Hubfile/,
    );
    rmSync(shop.file);
    assert.deepEqual(copy.load('a.localhost'), []);
  });
});

function projectIn(place: string, name: string) {
  const file = join(place, name, 'Hubfile');
  mkdirSync(join(place, name));
  const storage = join(place, 'storage');
  const load = (host: string) => {
    writeFileSync(
      file,
      `{\n\tadmin off\n\tstorage ${storage}\n}\nhttp://${host} {\n\thub {\n\t\tanonymous\n\t\tcookie_name hub\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt "a publisher key of more than 32 bytes"\n\t\t\t}\n\t\t}\n\t}\n}\n`,
    );
    return loadConfig(file, diskIo({}));
  };
  return {
    file,
    /** What the configuration is warned of. */
    load: (host: string) => load(host).warnings.map(({ message }) => message),
    /** As if a gateway had come to serve it. */
    run(host: string) {
      const { config } = load(host);
      keepHistoryNames(historyNames(config, storage), storage, projectOf(config));
    },
  };
}

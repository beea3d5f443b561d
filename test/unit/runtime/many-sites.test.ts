import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { createGateway, parseHubfile } from '../../../src/index.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { freePort } from '../../support/free-port.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('a configuration with many sites', () => {
  it('costs twice as much with twice as many of them', async (test) => {
    await assertLinear(test, (count, port) => {
      const site = (index: number): string =>
        `https://site${index}.example.com:${port} {\n\troute /part/* {\n\t\treverse_proxy 127.0.0.1:1\n\t}\n\treverse_proxy localhost:2\n}\n`;
      return Array.from({ length: count }, (_, index) => site(index)).join('');
    });
  });

  it('looks on the disk once for each of its files', async (test) => {
    const port = await freePort();
    const directory = await temporaryDirectory(test);
    const site = (index: number): string => `http://site${index}.example.com:${port} {\n}\n`;
    const sites = Array.from({ length: 20 }, (_, index) => site(index)).join('');
    const read = parseHubfile(`{\n\tstorage ${directory}\n\tadmin off\n}\n${sites}`, { env: {} });
    // As if each site had been imported from a file of its own.
    const hiddenFiles = Array.from({ length: 20 }, (_, index) => join(directory, `site${index}`));
    const plain = fs.realpathSync;
    let looks = 0;
    fs.realpathSync = Object.assign((path: fs.PathLike): string => {
      if (String(path).endsWith('site7')) looks += 1;
      return plain(path);
    }, plain);
    syncBuiltinESMExports();
    test.after(() => {
      fs.realpathSync = plain;
      syncBuiltinESMExports();
    });
    const config = { ...read, options: { ...read.options, hiddenFiles } };
    const gateway = createGateway(config, { log: silentLogger });
    await gateway.dryRun(config);
    await gateway.stop();
    assert.equal(looks, 1);
  });
});

describe('a site with many routes', () => {
  for (const cache of ['', '\tcache /part0/*\n']) {
    it(`costs twice as much with twice as many of them${cache === '' ? '' : ', also beside a cache'}`, async (test) => {
      await assertLinear(test, (count, port) => {
        const route = (index: number): string =>
          `\thandle /part${index}/* {\n\t\trespond text${index}\n\t}\n`;
        const routes = Array.from({ length: count }, (_, index) => route(index)).join('');
        return `https://site.example.com:${port} {\n${cache}${routes}}\n`;
      });
    });
  }
});

/** The sites of a configuration with so many parts. */
type Sites = (count: number, port: number) => string;

async function assertLinear(test: TestContext, sites: Sites): Promise<void> {
  // What is compiled and loaded once is not counted.
  await stepsOf(test, sites, 2);
  const few = await stepsOf(test, sites, 60);
  const many = await stepsOf(test, sites, 120);
  assert.ok(many < 2.05 * few, `${many} steps for 120, ${few} for 60`);
}

/** What it takes to read, check and build a configuration: entries of maps, and members that were looked at. */
async function stepsOf(test: TestContext, sites: Sites, count: number): Promise<number> {
  const port = await freePort();
  const options = `{\n\tstorage ${await temporaryDirectory(test)}\n\tadmin off\n\tlocal_certs\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n}\n`;
  const text = options + sites(count, port);
  const counter = countSteps(test);
  const config = parseHubfile(text, { env: {} });
  const gateway = createGateway(config, { log: silentLogger });
  await gateway.dryRun(config);
  await gateway.stop();
  return counter.stop();
}

type Method = (this: unknown, ...args: unknown[]) => unknown;

function countSteps(test: TestContext): { stop(): number } {
  let steps = 0;
  const counted = ([callback, ...rest]: readonly unknown[]): unknown[] => {
    if (typeof callback !== 'function') return [callback, ...rest];
    const counting = function (this: unknown, ...given: unknown[]): unknown {
      steps += 1;
      return Reflect.apply(callback, this, given);
    };
    return [counting, ...rest];
  };
  const patches: (() => void)[] = [];
  const patch = (prototype: object, name: string, isCallback: boolean): void => {
    const plain = Reflect.get(prototype, name) as Method;
    Reflect.set(prototype, name, function (this: unknown, ...args: unknown[]): unknown {
      if (!isCallback) steps += 1;
      return Reflect.apply(plain, this, isCallback ? counted(args) : args);
    });
    patches.push(() => Reflect.set(prototype, name, plain));
  };
  for (const name of ['find', 'some', 'filter', 'map', 'flatMap', 'every']) {
    patch(Array.prototype, name, true);
  }
  patch(Map.prototype, 'set', false);
  patch(Set.prototype, 'has', false);
  const stop = (): number => {
    for (const restore of patches.splice(0)) restore();
    return steps;
  };
  test.after(stop);
  return { stop };
}

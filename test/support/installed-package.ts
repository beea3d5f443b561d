import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type * as HubLibrary from '../../src/hub.ts';
import type * as Library from '../../src/index.ts';

/** The checkout. */
export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/**
 * The hubgate that the tests start. `npm test` builds and packs the checkout, installs the tarball in a
 * folder of its own and names that folder in HUBGATE_PACKAGE. While you work, leave the variable out or
 * set it to `source`: then the library is the source, and commands are those of `dist/`.
 */
const given = process.env['HUBGATE_PACKAGE'] ?? '';
const isSource = given === '' || given === 'source';
if (isSource && process.env['CI'] === 'true') {
  throw new Error('HUBGATE_PACKAGE must name the installed package: run the tests by `npm test`');
}

/** Where the package is installed. */
export const packageDirectory = isSource ? root : given;

/** The program that users start as `hubgate`. */
export const cli = join(packageDirectory, programOf(packageDirectory));

const door = (name: 'index' | 'hub'): string =>
  isSource
    ? new URL(`../../src/${name}.ts`, import.meta.url).href
    : pathToFileURL(join(packageDirectory, 'dist', `${name}.js`)).href;

// The types are those of the source: the declarations of the package are made of it.
const gateway = (await import(door('index'))) as typeof Library;
const hub = (await import(door('hub'))) as typeof HubLibrary;

export const { createGateway, parseHubfile, silentLogger } = gateway;
export const { createHub } = hub;

function programOf(directory: string): string {
  const { bin } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as {
    readonly bin: { readonly hubgate: string };
  };
  return bin.hubgate;
}

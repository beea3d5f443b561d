import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

/** The folder of the public suite of HTTP caches (cache-tests.fyi), with its script `run`. */
const suite = process.env['CACHE_TESTS'];

/** What is not passed, with the reason; docs/cache.md says more. */
const EXPECTED_FAILURES = new Map([
  ['cdn-no-cache', 'CDN-Cache-Control does not reach the client'],
  ['cdn-private', 'CDN-Cache-Control does not reach the client'],
  ['headers-store-Set-Cookie', 'answers with Set-Cookie are not kept'],
  ['other-set-cookie', 'answers with Set-Cookie are not kept'],
  ['headers-store-Transfer-Encoding', 'an unknown transfer coding is a broken answer'],
  ...['200', '203', '204', '404', '405', '410', '414', '501', '599'].map(
    (status) => [`heuristic-${status}-cached`, 'no time is made up without ttl'] as const,
  ),
  ['method-POST', 'answers to POST are not kept'],
  ['other-authorization-must-revalidate', 'only public and s-maxage open an answer to everyone'],
  ...['complete', 'reuse-partial', 'reuse-partial-absent', 'reuse-partial-byterange'].map(
    (what) => [`partial-store-partial-${what}`, 'parts are not kept'] as const,
  ),
  ['partial-store-partial-reuse-partial-suffix', 'parts are not kept'],
  ['vary-normalise-lang-order', 'some apps go by the order'],
  ['vary-normalise-lang-select', 'the languages of an app are not known'],
  ['conditional-lm-fresh-no-lm', 'the answer is newer than If-Modified-Since'],
]);

test('the public HTTP cache test suite', {
  skip: suite === undefined && 'CACHE_TESTS names no suite',
}, async (context) => {
  const folder = suite ?? '';
  const [port, origin] = [await freePort(), await freePort()];
  const site = `http://localhost:${port} {\n\tbind 127.0.0.1\n\tcache\n\treverse_proxy 127.0.0.1:${origin}\n}\n`;
  await startGateway(context, site);
  const directory = await temporaryDirectory(context);
  const saved = join(directory, 'results.json');
  await promisify(execFile)(join(folder, 'run'), [`http://localhost:${port}`], {
    env: {
      ...process.env,
      ORIGIN: String(origin),
      SAVE: saved,
      NODE_OPTIONS: `--import=${withUndici()}`,
    },
  });
  const results: Record<string, unknown> = JSON.parse(await readFile(saved, 'utf8'));
  const kinds = await kindsOf(folder);
  const failed = Object.keys(results).filter(
    (id) => results[id] !== true && kinds.get(id) !== 'check',
  );
  assert.deepEqual(failed.sort(), [...EXPECTED_FAILURES.keys()].sort());
  const passed = (kind: string): number =>
    Object.keys(results).filter((id) => kinds.get(id) === kind && results[id] === true).length;
  context.diagnostic(`required ${passed('required')}, optimal ${passed('optimal')}`);
});

async function kindsOf(folder: string): Promise<Map<string, string>> {
  const { default: suites } = await import(pathToFileURL(join(folder, 'tests/index.mjs')).href);
  return new Map(
    suites.flatMap(({ tests }: { tests: { id: string; kind?: string }[] }) =>
      tests.map(({ id, kind = 'required' }) => [id, kind]),
    ),
  );
}

/** The suite imports undici where it looks at interim responses, and has no packages of its own. */
function withUndici(): string {
  const undici = pathToFileURL(createRequire(import.meta.url).resolve('undici')).href;
  const hooks = `export const resolve = (name, context, next) => name === 'undici' ? { url: ${JSON.stringify(undici)}, shortCircuit: true } : next(name, context);`;
  const register = `import { register } from 'node:module'; register(${JSON.stringify(dataUrl(hooks))});`;
  return dataUrl(register);
}

function dataUrl(script: string): string {
  return `data:text/javascript;base64,${Buffer.from(script).toString('base64')}`;
}

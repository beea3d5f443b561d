import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, root, runCommand, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const run = promisify(execFile);

describe('docs/tutorial.md', () => {
  it('leads to a live page, word for word', { timeout: 60_000 }, async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-tutorial-'));
    removeWith(test, directory);
    const [port, app] = [await freePort(), await freePort()];
    // The test must not take the ports that the page names; nothing else is changed.
    const withPorts = (text: string): string =>
      text.replaceAll('8080', String(port)).replaceAll('3000', String(app));
    const page = withPorts(await readFile(join(root, 'docs/tutorial.md'), 'utf8'));
    const block = (language: string, at = 0): string =>
      [...page.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 'gs'))][at]?.[1] ?? '';
    await writeFile(join(directory, 'app.mjs'), block('js'));
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      block('hubfile').replace('storage .hubgate', `admin off\n\tstorage ${directory}/.hubgate`),
    );
    const [shell, , subscribe, publish] = [1, 0, 2, 3].map((at) => block('sh', at));
    const key = (/=(\$\(node .*\))\n/.exec(shell ?? '') ?? [])[1] ?? '';
    const { stdout: made } = await run('bash', ['-c', `echo -n ${key}`]);
    assert.match(made, /^[0-9a-f]{64}$/);
    const env = { HUB_PUBLISHER_JWT_KEY: made };
    const appProcess = startProcess(test, [join(directory, 'app.mjs')]);
    await appProcess.says('app: ready');
    const { code, stderr } = await runCommand(['validate', '--config', hubfile], env);
    assert.equal(code, 0, stderr);
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile], env);
    await gateway.says('Listening on');

    const args = (subscribe ?? '').trim().replaceAll("'", '').split(' ').slice(1);
    const subscriber = startProcess(test, [cli, ...args]);
    const site = `http://localhost:${port}/`;
    // The page has the script, and a form that is sent is announced to whoever listens.
    assert.match((await send(site, { headers: [['Accept', 'text/html']] })).body, /live\.js/);
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const post = { method: 'POST', headers: Object.entries(form), body: 'note=Buy+bread' };
    assert.equal((await send(site, post)).status, 303);
    const commands = (publish ?? '').replaceAll(
      'hubgate token',
      `${process.execPath} ${cli} token`,
    );
    // Until the subscriber has come and hears of it.
    while (!subscriber.output.includes('hello')) {
      const { stdout } = await run('bash', ['-c', commands], { env: { ...process.env, ...env } });
      assert.match(stdout, /^urn:uuid:/);
    }
    const text = await readFile(hubfile, 'utf8');
    await writeFile(
      hubfile,
      text.replace('\treverse_proxy', '\trespond /hello "Hello"\n\treverse_proxy'),
    );
    while ((await send(`${site}hello`)).body !== 'Hello')
      await new Promise((resolve) => setImmediate(resolve));
  });
});

describe('commands of the documents', () => {
  it('each is one that hubgate has, with options that it takes', { timeout: 120_000 }, async () => {
    const pages = [
      'README.md',
      ...(await readdir(join(root, 'docs'))).map((name) => `docs/${name}`),
    ];
    const helps = new Map<string, Promise<{ readonly stdout: string }>>();
    let count = 0;
    for (const page of pages.filter((name) => name.endsWith('.md'))) {
      const markdown = await readFile(join(root, page), 'utf8');
      const code = [...markdown.matchAll(/```(?:sh|text)\n(.*?)```|`([^`\n]+)`/gs)];
      for (const [, block, inline] of code) {
        for (const line of (block ?? inline ?? '').replaceAll('\\\n', ' ').split('\n')) {
          const [, words] = /(?:^|\$\(|&& )hubgate ([a-z][^|>)]*)/.exec(line) ?? [];
          if (words === undefined) continue;
          const [name = '', sub = '', ...rest] = words.split(/\s+/);
          const command = NESTED.has(`${name} ${sub}`) ? [name, sub] : [name];
          const key = command.join(' ');
          if (!helps.has(key)) helps.set(key, runCommand([...command, '--help']));
          const { stdout } = (await helps.get(key)) ?? { stdout: '' };
          assert.match(stdout, new RegExp(`^Usage: hubgate ${key}`), `${page}: ${line}`);
          for (const option of [sub, ...rest].filter((word) => /^--[a-z]/.test(word))) {
            const flag = option.split('=')[0] ?? '';
            assert.ok(new RegExp(`${flag}\\b`).test(stdout), `${page}: ${line}: ${flag}`);
          }
          count += 1;
        }
      }
    }
    assert.ok(count > 30, String(count));
  });
});

const NESTED = new Set([
  'token inspect',
  ...['stats', 'export', 'import', 'compact', 'verify'].map((name) => `history ${name}`),
]);

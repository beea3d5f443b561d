import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { cli, runCommand, startProcess } from '../support/process.ts';
import { programPath } from '../support/program.ts';
import { removeWith } from '../support/temporary-directory.ts';

async function start(test: TestContext) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-top-'));
  removeWith(test, directory);
  const [address, port] = [`127.0.0.1:${await freePort()}`, await freePort()];
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{\n\tadmin ${address}\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n\thub {\n\t\tname news\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n\trespond ok\n}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  return { address, site: `http://localhost:${port}` };
}

const ONCE = ['--once', '--interval', '0.5'];

describe('hubgate top', () => {
  it('--once --json prints current values and rates for programs', async (test) => {
    const { address, site } = await start(test);
    const stream = await openStream(test, `${site}/.well-known/hub?match=a`);
    const running = runCommand(['top', '--address', address, ...ONCE, '--json']);
    const over = new AbortController();
    void running.then(() => over.abort());
    while (!over.signal.aborted) await send(site);
    const { code, stdout } = await running;
    assert.equal(code, 0);
    const overview = JSON.parse(stdout);
    assert.equal(overview.ready, true);
    assert.equal(overview.configuration.generation, 1);
    const [first] = overview.sites;
    assert.equal(first.site, site);
    assert.ok(first.requests > 0 && first.mean > 0 && first.p99 > 0);
    assert.equal(first.errors, 0);
    const [hub] = overview.hubs;
    assert.deepEqual([hub.hub, hub.streams, hub.refusals], ['news', 1, 0]);
    assert.deepEqual(overview.slowest, []);
    stream.close();
  });

  it('--once in a pipe prints text without colours or cursor movements', async (test) => {
    const { address } = await start(test);
    const { code, stdout } = await runCommand(['top', '--address', address, ...ONCE]);
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^hubgate \d+\.\d+\.\d+ on 127\.0\.0\.1:\d+, up \d+s, processes 1, ready\n/,
    );
    assert.match(stdout, /^HUB +streams +updates\/s/m);
    assert.ok(!stdout.includes('\u001b'));
  });

  it('draws on a terminal until ctrl-C, and then restores it', async (test) => {
    const script = programPath(test, 'script', 'bsdutils');
    if (script === null) return;
    const { address } = await start(test);
    const command = `'${process.execPath}' ${cli} top --address ${address} --interval 0.2`;
    const terminal = spawn(script, ['-qec', command, '/dev/null'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    test.after(() => terminal.kill('SIGKILL'));
    let said = '';
    terminal.stdout.on('data', (chunk: Buffer) => (said += String(chunk)));
    while (said.split('HUB').length < 3) await once(terminal.stdout, 'data');
    const over = once(terminal, 'close');
    terminal.stdin.write('\u0003');
    await over;
    assert.ok(said.includes('\u001b[?1049h\u001b[?25l'));
    assert.ok(said.trimEnd().endsWith('\u001b[?25h\u001b[?1049l'), JSON.stringify(said.slice(-60)));
  });

  it('reports that no gateway is running', async () => {
    const { code, stderr } = await runCommand([
      'top',
      '--address',
      `127.0.0.1:${await freePort()}`,
    ]);
    assert.equal(code, 1);
    assert.match(stderr, /No gateway answers on 127\.0\.0\.1:\d+: nothing listens on port/);
  });
});

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { programPath } from '../support/program.ts';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { cli, runCommand, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

async function listening(test: TestContext, answer: (request: IncomingMessage) => void) {
  const server = createServer((request, response) => {
    answer(request);
    request.resume().on('end', () => response.end('ok'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return `127.0.0.1:${address.port}`;
}

async function start(test: TestContext, options: string, site: string) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-trace-'));
  removeWith(test, directory);
  const port = await freePort();
  const file = join(directory, 'Hubfile');
  const log = join(directory, 'access.log');
  await writeFile(
    file,
    `{\n\tadmin off\n\tstorage ${directory}/storage\n${options}}\nhttp://localhost:${port} {\n\tlog {\n\t\toutput file ${log}\n\t}\n${site}}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Listening on');
  const lines = async () =>
    (await readFile(log, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  return { gateway, site: `http://localhost:${port}`, lines, file };
}

describe('traces (W3C Trace Context)', () => {
  it('continue to the app, into the log, and to a collector', async (test) => {
    const seen: IncomingMessage[] = [];
    const app = await listening(test, (request) => seen.push(request));
    const bodies: Promise<string>[] = [];
    const collector = await listening(test, (request) => {
      bodies.push(request.toArray().then((chunks) => Buffer.concat(chunks).toString()));
    });
    const { gateway, site, lines } = await start(
      test,
      `\totlp http://${collector}\n`,
      `\treverse_proxy ${app}\n`,
    );
    await send(`${site}/a?token=s3cret`, {
      headers: [['traceparent', `00-${TRACE}-00f067aa0ba902b7-01`]],
    });
    const sent = /^00-([0-9a-f]{32})-([0-9a-f]{16})-01$/.exec(
      String(seen[0]?.headers['traceparent']),
    );
    assert.equal(sent?.[1], TRACE);
    assert.notEqual(sent?.[2], '00f067aa0ba902b7');
    assert.equal(await gateway.end('SIGTERM'), 0);
    const [line] = await lines();
    assert.deepEqual([line.trace_id, line.span_id], [TRACE, sent?.[2]]);
    assert.equal(line['hubgate.upstream.address'], app);
    assert.ok(line['hubgate.upstream.duration'] > 0);
    // What waited is sent before the end.
    const text = (await Promise.all(bodies)).join('');
    assert.ok(!text.includes('s3cret'));
    const [span] = JSON.parse(text).resourceSpans[0].scopeSpans[0].spans;
    assert.deepEqual(
      [span.traceId, span.spanId, span.parentSpanId],
      [TRACE, sent?.[2], '00f067aa0ba902b7'],
    );
  });

  it('are passed on as the client sent them with `trace off`', async (test) => {
    const seen: IncomingMessage[] = [];
    const app = await listening(test, (request) => seen.push(request));
    const { site } = await start(test, '\ttrace off\n', `\treverse_proxy ${app}\n`);
    await send(site);
    await send(site, { headers: [['traceparent', 'as it is']] });
    assert.deepEqual(
      seen.map(({ headers }) => headers['traceparent']),
      [undefined, 'as it is'],
    );
  });
});

describe('the log', () => {
  it('has one line when a stream begins, and one with events, bytes and the reason when it ends', async (test) => {
    const { gateway, site, lines } = await start(
      test,
      '',
      '\thub {\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n',
    );
    const url = `${site}/.well-known/hub`;
    const stream = await openStream(test, `${url}?match=a`);
    const [began] = await lines();
    assert.deepEqual([began.msg, began['url.query']], ['A stream began', 'match=a']);
    stream.close();
    while ((await lines()).length < 2);
    assert.equal(await gateway.end('SIGTERM'), 0);
    const ended = (await lines()).find(({ msg }) => msg === 'stream ended');
    assert.equal(ended['hubgate.stream.events'], 0);
    assert.equal(ended['hubgate.stream.end_reason'], 'client');
    assert.ok(ended['http.response.body.size'] > 0);
  });

  it('names the origin of a page that may not read the hub, and the fix', async (test) => {
    const { gateway, site } = await start(
      test,
      '',
      '\thub {\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\tcors_origins https://app.example\n\t\ttransport memory\n\t}\n',
    );
    const url = `${site}/.well-known/hub?match=a`;
    for (const origin of ['https://app.example', site, 'https://other.example']) {
      const stream = await openStream(test, url, { headers: [['Origin', origin]] });
      stream.close();
    }
    await gateway.says('"check":"cors_origins"');
    assert.equal(await gateway.end('SIGTERM'), 0);
    const told = gateway.output.split('"check":"cors_origins"');
    assert.equal(told.length, 2);
    // The hub has answered it.
    assert.doesNotMatch(gateway.output, /refused/);
    assert.match(
      told[1] ?? '',
      /https:\/\/other\.example.*add https:\/\/other\.example to cors_orig/,
    );
  });

  it('shows at startup: version, configuration, sites, ports, and how many processes and why', async (test) => {
    const { gateway, site, file } = await start(test, '', '\trespond ok\n');
    const text = gateway.output;
    assert.match(text, /hubgate \d+\.\d+\.\d+ serves 1 site/);
    assert.ok(text.includes(JSON.stringify(file)) && text.includes(`["${site}"]`));
    assert.match(text, /Running 1 worker on 2 CPUs \(fewer than 4 CPUs/);
    assert.match(text, /Listening on http:\/\/.*:\d+/);
  });

  it('is coloured text on a terminal, and without colour with NO_COLOR', async (test) => {
    const script = programPath(test, 'script', 'bsdutils');
    if (script === null) return;
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-tty-'));
    removeWith(test, directory);
    const port = await freePort();
    const admin = `127.0.0.1:${await freePort()}`;
    const file = join(directory, 'Hubfile');
    await writeFile(
      file,
      `{\n\tadmin ${admin}\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n\trespond ok\n}\n`,
    );
    for (const [environment, colour] of [
      [{}, true],
      [{ NO_COLOR: '1' }, false],
    ] as const) {
      const command = `'${process.execPath}' ${cli} run --no-watch --config ${file}`;
      const { PATH = '' } = process.env;
      const terminal = spawn(script, ['-qec', command, '/dev/null'], {
        env: { PATH, TERM: 'xterm', ...environment },
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      test.after(() => terminal.kill('SIGKILL'));
      let said = '';
      terminal.stdout.on('data', (chunk: Buffer) => (said += String(chunk)));
      while (!said.includes('Admin API on')) await once(terminal.stdout, 'data');
      const over = once(terminal, 'exit');
      await runCommand(['stop', '--address', admin]);
      await over;
      assert.equal(said.includes('\u001b[32mINFO'), colour);
      assert.match(said, /INFO /);
    }
  });
});

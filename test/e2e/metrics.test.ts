import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { programPath } from '../support/program.ts';
import { visit } from '../support/tls-client.ts';
import { removeWith } from '../support/temporary-directory.ts';

const ROOT = new URL('../../', import.meta.url);

/** The suffixes under which Prometheus knows a histogram. */
const SUFFIX = /_(?:bucket|sum|count)$/;

interface Metric {
  readonly type: string;
  readonly help: string;
  readonly labels: Set<string>;
}

interface Running {
  readonly admin: string;
  readonly site: string;
  readonly mercure: string;
  readonly directory: string;
}

async function start(
  test: TestContext,
  more = '',
  transport = 'memory',
  directives = '',
): Promise<Running> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-metrics-'));
  removeWith(test, directory);
  const app = createServer((request, response) => {
    if (request.url === '/chunks') {
      response.write('a'.repeat(100));
      response.end('b'.repeat(23));
    } else response.end('hello');
  });
  await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
  test.after(() => app.close());
  const address = app.address();
  assert.ok(address !== null && typeof address === 'object');
  const [adminPort, port, tls] = [await freePort(), await freePort(), await freePort()];
  const hub = (name: string, directive: string): string =>
    `${directive} {\n\t\tname ${name}\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport ${transport}\n\t}\n`;
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{\n\tadmin 127.0.0.1:${adminPort}\n\tstorage ${directory}/storage\n\thttp_port ${await freePort()}\n${more}}\nhttp://localhost:${port} {\n\t${hub('news', 'hub')}${directives}\treverse_proxy 127.0.0.1:${address.port}\n}\nhttps://localhost:${tls} {\n\ttls internal\n\t${hub('old', 'mercure')}\trespond secure\n}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  const admin = `http://127.0.0.1:${adminPort}`;
  const site = `http://localhost:${port}`;
  return { admin, site, mercure: `https://localhost:${tls}`, directory };
}

async function text(admin: string): Promise<string> {
  return (await send(`${admin}/metrics`)).body;
}

async function handshake(
  port: number,
  directory: string,
  session: Buffer | null = null,
): Promise<Buffer | null> {
  const ca = await readFile(join(directory, 'storage/pki/local/root.crt'));
  const resumed = session === null ? {} : { session };
  const visited = await visit({ port, servername: 'localhost', ca, ...resumed }, [
    `localhost:${port}`,
  ]);
  return visited.session;
}

function parse(body: string): Map<string, Metric> {
  const found = new Map<string, Metric>();
  const helps = new Map([...body.matchAll(/^# HELP (\S+) (.*)$/gm)].map(([, n, h]) => [n, h]));
  for (const [, name = '', type = ''] of body.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    found.set(name, { type, help: helps.get(name) ?? '', labels: new Set() });
  }
  for (const [, series = '', labels = ''] of body.matchAll(/^([a-z_]+)\{(.*)\} \S+$/gm)) {
    const metric = found.get(series) ?? found.get(series.replace(SUFFIX, ''));
    for (const [, label = ''] of labels.matchAll(/([a-z_]+)="/g)) metric?.labels.add(label);
  }
  return found;
}

/** Names that an expression of Prometheus asks for. */
function namesIn(expression: string): string[] {
  return [...expression.matchAll(/\b((?:hubgate|hub|mercure|process|nodejs)_[a-z_]+)/g)].flatMap(
    ([, name]) => name ?? [],
  );
}

describe('metrics (issue 14)', () => {
  it('count requests by site, method and class; methods that a client invents are `other`', async (test) => {
    const { admin, site } = await start(test);
    await send(`${site}/a`);
    await send(`${site}/chunks`);
    for (const method of ['PROPFIND', 'LOCK', 'MKCOL']) await send(`${site}/b`, { method });
    await send(`${site}/c`, { headers: [['Host', 'made-up.example']] });
    const stream = await openStream(test, `${site}/.well-known/hub?match=a`);
    const body = await text(admin);
    const requests = [...body.matchAll(/^hubgate_http_requests_total\{(.*)\} (\d+)$/gm)]
      .map(([, labels, value]) => `${labels} ${value}`)
      .sort();
    assert.deepEqual(requests, [
      `site="${site}",method="GET",status="2xx" 3`,
      `site="${site}",method="other",status="2xx" 3`,
      'site="none",method="GET",status="4xx" 1',
    ]);
    const value = (series: string): string | undefined =>
      body
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.split(' ')[1];
    // Five times `hello` and `chunks` of unknown length; what a stream comes to is the hub's to tell.
    const sum = `hubgate_http_response_size_bytes_sum{site="${site}"}`;
    assert.equal(value(sum), String(4 * 5 + 123));
    assert.equal(value(`hubgate_http_request_duration_seconds_count{site="${site}"}`), '6');
    assert.equal(value(`hubgate_http_requests_in_flight{site="${site}"}`), '0');
    assert.match(body, /^hubgate_upstream_responses_total\{upstream=".*",status="2xx"\} 5$/m);
    assert.match(body, /^hub_subscribers_connected\{hub="news"\} 1$/m);
    stream.close();
  });

  it('count requests by the method of the client, whatever the site makes of it', async (test) => {
    const { admin, site } = await start(test, '', 'memory', '\tmethod /a GET\n');
    await send(`${site}/a`, { method: 'POST' });
    const requests = [...(await text(admin)).matchAll(/^hubgate_http_requests_total\{(.*)\}/gm)];
    assert.deepEqual(
      requests.map(([, labels]) => labels),
      [`site="${site}",method="POST",status="2xx"`],
    );
  });

  it('count live pages with parts that are not updated, by reason', async (test) => {
    const live = 'discovery {\n\t\tchanges public\n\t\tlive {\n\t\t\treport\n\t\t}\n\t}\n';
    const { admin, site } = await start(test, '', 'memory', live);
    for (const reason of ['visitor', 'visitor', 'gone']) {
      const target = `${site}/.well-known/hub/live-report?withheld=${reason}`;
      assert.equal((await send(target, { method: 'POST' })).status, 204);
    }
    const counted = [
      ...(await text(admin)).matchAll(/^hub_withheld_pages_total\{(hub="news".*)\} (\d+)$/gm),
    ];
    assert.deepEqual(
      counted.map(([, labels, value]) => `${labels} ${value}`),
      [
        'hub="news",reason="visitor" 2',
        'hub="news",reason="script" 0',
        'hub="news",reason="gone" 1',
      ],
    );
  });

  it('distinguish resumed handshakes from full ones', async (test) => {
    const { admin, mercure, directory } = await start(test);
    const port = Number(new URL(mercure).port);
    const session = await handshake(port, directory);
    await handshake(port, directory, session);
    const body = await text(admin);
    for (const resumed of ['no', 'yes']) {
      assert.match(
        body,
        new RegExp(
          `^hubgate_tls_handshakes_total\\{version="TLSv1.3",resumed="${resumed}",protocol="http/1.1"\\} 1$`,
          'm',
        ),
      );
    }
    assert.match(body, /^hubgate_connections_total 2$/m);
  });

  it('show a failing upstream: attempts, failures, and that it gets no requests', async (test) => {
    const down = await freePort();
    const directives = `\treverse_proxy /down* 127.0.0.1:${down} {\n\t\tfail_duration 60s\n\t\tmax_fails 1\n\t\tlb_try_duration 0s\n\t}\n`;
    const { admin, site } = await start(test, '', 'memory', directives);
    assert.equal((await send(`${site}/down`)).status, 502);
    const body = await text(admin);
    const upstream = `upstream="127.0.0.1:${down}"`;
    assert.ok(body.includes(`hubgate_upstream_healthy{${upstream}} 0`));
    assert.ok(body.includes(`hubgate_upstream_failures_total{${upstream}} 1`));
    assert.match(body, /^hubgate_http_requests_total\{site=".*",method="GET",status="5xx"\} 1$/m);
  });

  it('have the names of the reference hub, without labels, in `profile mercure`', async (test) => {
    const { admin } = await start(test);
    const body = await text(admin);
    for (const name of ['subscribers_connected', 'subscribers_total', 'updates_total']) {
      assert.match(body, new RegExp(`^mercure_${name} 0$`, 'm'));
    }
  });

  it('cover all workers together', { skip: process.platform !== 'linux' }, async (test) => {
    const { admin, site } = await start(test, '\tworkers 3\n', 'lmdb');
    for (let i = 0; i < 30; i += 1) await send(`${site}/a`);
    const body = await text(admin);
    assert.match(body, /^hubgate_http_requests_total\{site=".*",method="GET",status="2xx"\} 30$/m);
    assert.match(body, /^hubgate_workers 3$/m);
    assert.match(body, /^hubgate_config_generation 1$/m);
  });
});

describe('the directive metrics', () => {
  for (const workers of process.platform === 'linux' ? [1, 2] : [1]) {
    it(`serves what the admin API serves, of all ${workers} processes`, async (test) => {
      const guard = '\tmetrics /metrics\n';
      const { admin, site } = await start(test, `\tworkers ${workers}\n`, 'lmdb', guard);
      for (let i = 0; i < 20; i += 1) {
        await send(`${site}/`, { headers: [['Connection', 'close']] });
      }
      const alone = { headers: [['Connection', 'close']] } as const;
      const [theirs, ours] = await Promise.all([
        send(`${admin}/metrics`),
        // Several at once, from several workers.
        Promise.all(Array.from({ length: 10 }, () => send(`${site}/metrics`, alone))),
      ]);
      const names = (text: string): string[] =>
        [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = '']) => name).toSorted();
      for (const { status, headers, body } of ours) {
        assert.equal(status, 200);
        assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8');
        assert.deepEqual(names(body), names(theirs.body));
        assert.match(body, /^hubgate_http_requests_total\{[^}]*status="2xx"\} [23]\d$/m);
      }
      assert.equal((await send(`${site}/metrics`, { method: 'HEAD' })).body, '');
    });
  }
});

describe('tools for the metrics', () => {
  const seen = async (test: TestContext): Promise<string> => {
    // Nothing listens there, but what is counted has its names.
    const hub = 'memory\n\t\toutbox postgres://127.0.0.1:1/app';
    const { admin, site, mercure, directory } = await start(test, '', hub);
    await send(`${site}/a`);
    await send(`${site}/.well-known/hub`, { method: 'POST', body: 'topic=a' });
    await handshake(Number(new URL(mercure).port), directory);
    return text(admin);
  };

  it('promtool reports no problems', async (test) => {
    const promtool = programPath(test, 'promtool', 'prometheus');
    if (promtool === null) return;
    const said = execFileSync(promtool, ['check', 'metrics'], {
      input: await seen(test),
      encoding: 'utf8',
    });
    assert.equal(said, '');
  });

  it('the alert rules are valid, and query metrics that exist', async (test) => {
    const rules = new URL('ops/prometheus-alerts.yml', ROOT);
    const known = parse(await seen(test));
    const asked = namesIn(await readFile(rules, 'utf8'));
    assert.ok(asked.length > 8);
    for (const name of asked)
      assert.ok(known.has(name) || known.has(name.replace(SUFFIX, '')), name);
    const promtool = programPath(test, 'promtool', 'prometheus');
    if (promtool === null) return;
    const code = await new Promise((resolve) =>
      execFile(promtool, ['check', 'rules', rules.pathname], (error) => resolve(error?.code ?? 0)),
    );
    assert.equal(code, 0);
  });

  it('the dashboard queries metrics that exist, with expressions that Prometheus can parse', async (test) => {
    const file = await readFile(new URL('ops/grafana-dashboard.json', ROOT), 'utf8');
    const { panels }: { panels: { targets?: { expr: string }[] }[] } = JSON.parse(file);
    const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    const known = parse(await seen(test));
    for (const name of expressions.flatMap(namesIn)) {
      assert.ok(known.has(name) || known.has(name.replace(SUFFIX, '')), name);
    }
    const promtool = programPath(test, 'promtool', 'prometheus');
    if (promtool === null) return;
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-dashboard-'));
    removeWith(test, directory);
    const rules = expressions.map((expr, index) => ({
      record: `panel:${index}`,
      // Grafana's own variable.
      expr: expr.replaceAll('$__rate_interval', '1m'),
    }));
    const path = join(directory, 'panels.yml');
    await writeFile(path, JSON.stringify({ groups: [{ name: 'panels', rules }] }));
    execFileSync(promtool, ['check', 'rules', path], { stdio: 'pipe' });
  });

  it('docs/operations.md lists each metric, its type and its labels', async (test) => {
    const page = await readFile(new URL('docs/operations.md', ROOT), 'utf8');
    const rows = [...page.matchAll(/^\| `([a-z_]+)` \| (\w+) \| ([^|]*) \| (.*) \|$/gm)].map(
      ([, name, type, labels = '', help]) => [name, type, labels.trim(), help],
    );
    const known = [...parse(await seen(test))].map(([name, { type, help, labels }]) => [
      name,
      type,
      [...labels]
        .filter((label) => label !== 'le')
        .map((label) => `\`${label}\``)
        .join(', '),
      help,
    ]);
    assert.deepEqual(rows, known);
  });
});

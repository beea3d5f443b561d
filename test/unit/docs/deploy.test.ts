import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse, parseAllDocuments } from 'yaml';
import { parseDuration } from '../../../src/config/units.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { formatHubfile } from '../../../src/hubfile/format.ts';
import { loadConfig } from '../../../src/load-config.ts';
import { createCertificateFiles, withFiles } from '../../support/certificate-files.ts';
import { programPath } from '../../support/program.ts';
import { removeWith } from '../../support/temporary-directory.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const deploy = join(root, 'deploy');
const run = promisify(execFile);
const env = {
  HUB_PUBLISHER_JWT_KEY: 'a-publisher-key-of-more-than-32-bytes-0123',
  HUB_SUBSCRIBER_JWT_KEY: 'a-subscriber-key-of-more-than-32-bytes-012',
};

/** A part of a manifest, which its test knows how to read. */
interface Part {
  readonly [key: string]: Part | undefined;
}

const manifests = readdirSync(join(deploy, 'kubernetes')).flatMap((file) =>
  parseAllDocuments(readFileSync(join(deploy, 'kubernetes', file), 'utf8')).map((document) => {
    assert.deepEqual(document.errors, [], file);
    return document.toJS() as Part;
  }),
);
const manifest = (kind: string, name: string): Part => {
  const found = manifests.find(
    (one) => text(one, 'kind') === kind && text(one, 'metadata', 'name') === name,
  );
  assert.ok(found, `${kind} ${name}`);
  return found;
};
const at = (part: Part | undefined, ...keys: readonly string[]): Part => {
  let found = part;
  for (const key of keys) found = found?.[key];
  assert.ok(found !== undefined, keys.join('.'));
  return found;
};
const text = (part: Part | undefined, ...keys: readonly string[]): string =>
  scalar(at(part, ...keys));
const scalar = (value: unknown): string => {
  assert.ok(typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean');
  return String(value);
};
const list = (part: Part, ...keys: readonly string[]): readonly Part[] =>
  Object.values(at(part, ...keys)) as Part[];

describe('deploy: Hubfiles', () => {
  const { site } = createCertificateFiles();
  const hubfiles = {
    'docker/Hubfile': readFileSync(join(deploy, 'docker/Hubfile'), 'utf8'),
    'systemd/Hubfile': readFileSync(join(deploy, 'systemd/Hubfile'), 'utf8'),
    'the ConfigMap of kubernetes/': text(manifest('ConfigMap', 'hubgate'), 'data', 'Hubfile'),
  };
  for (const [name, hubfile] of Object.entries(hubfiles)) {
    it(`${name} is valid and formatted`, () => {
      const io = withFiles(
        { ...diskIo(env), read: () => Buffer.from(hubfile) },
        { '/etc/hubgate-tls/tls.crt': site.cert, '/etc/hubgate-tls/tls.key': site.key },
      );
      const { warnings } = loadConfig('Hubfile', io, 'hubfile');
      const expected = ['local-certificate', 'certificate-for-others'];
      assert.deepEqual(
        warnings.filter(({ code }) => !expected.includes(code)),
        [],
      );
      assert.equal(formatHubfile(hubfile), hubfile);
    });
  }
});

describe('deploy: systemd', () => {
  it('systemd-analyze accepts the units', async (test) => {
    const analyze = programPath(test, 'systemd-analyze', 'systemd');
    if (analyze === null) return;
    const directory = await temporary(test);
    const units = readdirSync(join(deploy, 'systemd')).filter((name) => name !== 'Hubfile');
    for (const unit of units) {
      const written = readFileSync(join(deploy, 'systemd', unit), 'utf8');
      // The program need not be where it is once it is installed.
      await writeFile(
        join(directory, unit),
        written.replaceAll('=hubgate run', `=${process.execPath} run`),
      );
    }
    const files = units.map((unit) => join(directory, unit.replace('@.', '@2029.')));
    const { stderr } = await run(analyze, ['verify', ...files]);
    // The units of other packages are read, too.
    const complaints = stderr
      .split('\n')
      .filter((line) => !/^\/(?:etc|lib|run|usr)\//.test(line))
      .join('\n');
    assert.equal(complaints, '');
    for (const unit of units.filter((name) => name.endsWith('.service'))) {
      const written = readFileSync(join(deploy, 'systemd', unit), 'utf8');
      for (const line of ['Type=notify', 'NotifyAccess=all', 'LimitNOFILE=1048576'])
        assert.ok(written.includes(`\n${line}\n`), `${unit}: ${line}`);
      assert.match(written, /\nReadWritePaths=\/var\/lib\/hubgate /);
      // npm and the package for Debian install to /usr/bin, docs/install.md to /usr/local/bin.
      assert.match(written, /\nExecStart=hubgate run /);
    }
  });
});

describe('deploy: docker', () => {
  const dockerfile = readFileSync(join(deploy, 'docker/Dockerfile'), 'utf8');
  const compose = parse(readFileSync(join(deploy, 'docker/compose.yaml'), 'utf8')) as Part;

  it('the image runs without root, has a health check and copies only existing files', () => {
    const users = [...dockerfile.matchAll(/^USER (.+)$/gm)].map(([, user]) => user);
    assert.deepEqual(users, ['node']);
    assert.match(dockerfile, /^HEALTHCHECK .*\\\n.*9090\/health\/ready/m);
    const copied = [...dockerfile.matchAll(/^COPY (\S+) /gm)].map(([, path = '']) => path);
    const sent = readFileSync(join(deploy, 'docker/Dockerfile.dockerignore'), 'utf8').split('\n');
    for (const path of copied) {
      assert.ok(existsSync(join(root, path)), path);
      assert.ok(sent.includes(`!${path}`), path);
    }
  });

  it('the services mount existing files and wait for the services that they need; the file contains no secrets', () => {
    const services = Object.entries(at(compose, 'services')) as [string, Part][];
    assert.deepEqual(
      services.map(([name]) => name),
      ['hubgate', 'app', 'redis', 'prometheus', 'grafana'],
    );
    for (const [name, service] of services) {
      for (const mount of Object.values(service['volumes'] ?? {}) as unknown as readonly string[]) {
        const [source = ''] = mount.split(':');
        const isThere = source.startsWith('.')
          ? existsSync(join(deploy, 'docker', source))
          : source in at(compose, 'volumes');
        assert.ok(isThere, `${name}: ${mount}`);
      }
      for (const value of Object.values(service['environment'] ?? {}))
        assert.match(scalar(value), /^\$\{/, name);
    }
    const hubgate = at(compose, 'services', 'hubgate');
    const hubfile = readFileSync(join(deploy, 'docker/Hubfile'), 'utf8');
    for (const name of Object.keys(at(hubgate, 'environment'))) assert.ok(hubfile.includes(name));
    assert.equal(text(hubgate, 'depends_on', 'redis', 'condition'), 'service_healthy');
    assert.ok(at(compose, 'services', 'redis', 'healthcheck'));
    assert.deepEqual(at(hubgate, 'cap_drop'), ['ALL']);
  });

  it('docker-compose accepts the services, and would refuse an unknown word', async (test) => {
    const program = programPath(test, 'docker-compose', 'docker-compose');
    if (program === null) return;
    const directory = await temporary(test);
    // Debian's version is older than a name for the whole.
    const written = readFileSync(join(deploy, 'docker/compose.yaml'), 'utf8').replace(
      /^name: .*\n/m,
      '',
    );
    const secrets = { ...env, GRAFANA_PASSWORD: 'a password of this test' };
    const check = async (name: string, content: string) => {
      const file = join(directory, `${name}.yaml`);
      await writeFile(file, content);
      const { PATH } = process.env;
      return run(program, ['-f', file, 'config', '--quiet'], { env: { PATH, ...secrets } });
    };
    await check('compose', written);
    await assert.rejects(check('mistaken', written.replace('healthcheck:', 'healthchek:')));
  });

  it('the health check of the image distinguishes a gateway that is ready from one that is not', async () => {
    const [, text = ''] = /^HEALTHCHECK [^]*?CMD (\[.*\])$/m.exec(dockerfile) ?? [];
    const [program, ...args] = JSON.parse(text) as string[];
    assert.equal(program, 'node');
    for (const [status, code] of [
      [200, 0],
      [503, 1],
      [null, 1],
    ] as const) {
      const server = createServer((_request, response) => response.writeHead(status ?? 0).end());
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      if (status === null) await new Promise((resolve) => server.close(resolve));
      const script = (args.at(-1) ?? '').replace('127.0.0.1:9090', `127.0.0.1:${port}`);
      const asked = run(process.execPath, [...args.slice(0, -1), script]);
      const exit = await asked.then(
        () => 0,
        (error: { readonly code: number }) => error.code,
      );
      assert.equal(exit, code);
      server.close();
      server.closeAllConnections();
    }
  });

  it('Prometheus accepts its configuration', async (test) => {
    const promtool = programPath(test, 'promtool', 'prometheus');
    if (promtool === null) return;
    const directory = await temporary(test);
    cpSync(join(deploy, 'docker/prometheus.yml'), join(directory, 'prometheus.yml'));
    cpSync(join(root, 'ops/prometheus-alerts.yml'), join(directory, 'prometheus-alerts.yml'));
    await run(promtool, ['check', 'config', join(directory, 'prometheus.yml')]);
  });
});

describe('deploy: kubernetes', () => {
  const deployment = manifest('Deployment', 'hubgate');
  const pod = at(deployment, 'spec', 'template', 'spec');
  const container = at(pod, 'containers', '0');

  it('each object declares its kind, and its selectors match pods', () => {
    const labels = ['hubgate', 'hubgate-redis'];
    for (const one of manifests) {
      for (const keys of [['apiVersion'], ['kind'], ['metadata', 'name']]) at(one, ...keys);
      const selector = one['spec']?.['selector'];
      if (selector === undefined) continue;
      const wanted = (selector['matchLabels'] ?? selector)['app.kubernetes.io/name'];
      assert.ok(labels.includes(scalar(wanted)), text(one, 'kind'));
    }
    for (const one of [deployment, manifest('StatefulSet', 'hubgate-redis')]) {
      const given = at(one, 'spec', 'template', 'metadata', 'labels');
      assert.deepEqual(given, at(one, 'spec', 'selector', 'matchLabels'));
    }
  });

  it('kubectl knows every field of the workloads', async (test) => {
    const kubectl = programPath(test, 'kubectl', 'kubernetes-client');
    if (kubectl === null) return;
    const directory = await temporary(test);
    for (const workload of [deployment, manifest('StatefulSet', 'hubgate-redis')]) {
      const file = join(directory, 'workload.json');
      await writeFile(file, JSON.stringify(workload));
      // It reads the object as what it is, asks no cluster, and leaves out what it does not know.
      const change = ['set', 'env', '--local', '-f', file, '-o', 'json', 'OF_THIS_TEST=1'];
      const { stdout } = await run(kubectl, change, { env: { KUBECONFIG: '/dev/null' } });
      const known = new Set(scalarsOf(JSON.parse(stdout)));
      for (const one of scalarsOf(workload)) assert.ok(known.has(one), one);
    }
  });

  it('two replicas share the history in the deployed Redis', () => {
    assert.equal(text(deployment, 'spec', 'replicas'), '2');
    const redis = text(manifest('Service', 'hubgate-redis'), 'metadata', 'name');
    const hubfile = text(manifest('ConfigMap', 'hubgate'), 'data', 'Hubfile');
    assert.ok(hubfile.includes(`url redis://${redis}:6379`));
  });

  it('the ConfigMap is mounted as a directory, so that a change arrives', () => {
    const mounts = list(container, 'volumeMounts');
    const volumes = list(pod, 'volumes');
    assert.deepEqual(
      mounts.map((mount) => text(mount, 'name')),
      volumes.map((volume) => text(volume, 'name')),
    );
    assert.ok(mounts.every((mount) => mount['subPath'] === undefined));
    const [hubfile] = volumes;
    assert.equal(text(hubfile, 'configMap', 'name'), 'hubgate');
    assert.equal(text(container, 'args', '2'), `${text(mounts[0], 'mountPath')}/Hubfile`);
  });

  it('the probes use the listener for metrics, and the grace period leaves enough time to stop', () => {
    const names = list(container, 'ports').map((port) => text(port, 'name'));
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
      const { path, port } = at(container, probe, 'httpGet') as unknown as Record<string, string>;
      assert.match(path ?? '', /^\/(?:hub\/health\/live|health\/ready)$/);
      assert.equal(port, 'metrics');
    }
    assert.ok(names.includes('metrics'));
    const hubfile = text(manifest('ConfigMap', 'hubgate'), 'data', 'Hubfile');
    assert.match(hubfile, /\tmetrics :9090\n/);
    const grace = parseDuration(/grace_period (\S+)/.exec(hubfile)?.[1] ?? '') ?? Number.NaN;
    const preStop = text(container, 'lifecycle', 'preStop', 'exec', 'command', '1');
    const allowed = Number(text(pod, 'terminationGracePeriodSeconds')) * 1000;
    assert.ok(allowed > grace + Number(preStop) * 1000);
  });

  it('nothing needs root', () => {
    assert.equal(text(pod, 'securityContext', 'runAsNonRoot'), 'true');
    assert.deepEqual(at(container, 'securityContext', 'capabilities', 'drop'), ['ALL']);
    assert.deepEqual(at(pod, 'securityContext', 'sysctls', '0'), {
      name: 'net.ipv4.ip_unprivileged_port_start',
      value: '0',
    });
  });
});

/** What stands in an object, each with its path; positions in lists aside. */
function scalarsOf(part: unknown, path = ''): readonly string[] {
  if (typeof part !== 'object' || part === null) return [`${path} = ${String(part)}`];
  const inList = Array.isArray(part);
  return Object.entries(part).flatMap(([key, value]) =>
    scalarsOf(value, `${path}/${inList ? '*' : key}`),
  );
}

async function temporary(test: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-deploy-'));
  removeWith(test, directory);
  return directory;
}

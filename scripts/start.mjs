// The example: a gateway with Hubfile.example in front of examples/app. Installs and builds what is
// missing, makes the keys that both share, and says what to try. Ctrl-C ends both.
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { build } from './build.mjs';
import { installMissing, root } from './install.mjs';

const SITE = 'https://localhost:8443';
const LIVE = 'https://live.localhost:8443';
const HUB = `${SITE}/.well-known/hub`;
const storage = join(root, '.hubgate');
const rootCertificate = join(storage, 'pki', 'local', 'root.crt');
const cli = join(root, 'dist', 'cli', 'main.js');

installMissing();
await build();
mkdirSync(storage, { recursive: true, mode: 0o700 });
const appPort = await freePort();
const livePort = await freePort();
// The same for both, so that one token can publish, read private updates and list subscriptions.
const key = demoKey();
const env = {
  ...process.env,
  HUB_PUBLISHER_JWT_KEY: key,
  HUB_SUBSCRIBER_JWT_KEY: key,
  APP_PORT: String(appPort),
  LIVE_PORT: String(livePort),
  PORT: String(appPort),
  SITE,
};
const token = writeToken();

const children = [];
let ending = false;
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => end(0));

const pidFile = join(storage, 'example.pid');
rmSync(pidFile, { force: true });
const gateway = start([cli, 'run', '--config', 'Hubfile.example', '--pidfile', pidFile], env);
await serving(gateway);
if (!ending) {
  start([join('examples', 'app', 'server.mjs')], {
    ...env,
    HUB_DEMO_TOKEN: token,
    NODE_EXTRA_CA_CERTS: rootCertificate,
  });
  start([join('examples', 'live', 'server.mjs')], { ...env, PORT: String(livePort) });
  await Promise.all([accepting(appPort), accepting(livePort)]);
}
if (!ending) explain();

function start(args, environment) {
  const child = spawn(process.execPath, args, {
    cwd: root,
    env: environment,
    stdio: ['ignore', 'inherit', 'inherit'],
    // Ctrl-C is for this process, which ends its children once and in good order.
    detached: process.platform !== 'win32',
  });
  child.once('exit', (code) => end(code ?? 1));
  children.push(child);
  return child;
}

/** Resolves when this gateway has its ports: another one may answer on the same address. */
async function serving(child) {
  for (;;) {
    if (ending || child.exitCode !== null) return;
    if (existsSync(pidFile) && readFileSync(pidFile, 'utf8').trim() === String(child.pid)) return;
    await pause();
  }
}

/** Resolves when an app accepts connections, so that the first request finds it. */
async function accepting(port) {
  for (;;) {
    if (ending) return;
    const isOpen = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1');
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
    if (isOpen) return;
    await pause();
  }
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, 100));
}

function end(code) {
  if (ending) return;
  ending = true;
  process.exitCode = code;
  for (const child of children) if (child.exitCode === null) child.kill('SIGTERM');
}

/** The same over restarts, so that the tokens in browsers stay valid. */
function demoKey() {
  const file = join(storage, 'publisher.key');
  if (!existsSync(file)) writeFileSync(file, randomBytes(32).toString('hex'), { mode: 0o600 });
  return readFileSync(file, 'utf8').trim();
}

/** May publish on the site's topics, and read everything. */
function writeToken() {
  const { stdout, status, stderr } = spawnSync(
    process.execPath,
    [
      ...[cli, 'token', '--iss', SITE, '--aud', HUB, '--key', `@${join(storage, 'publisher.key')}`],
      ...['--publish-urlpattern', `${SITE}/*`, '--subscribe', '*', '--ttl', '30d'],
    ],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
  writeFileSync(join(storage, 'publisher.token'), stdout, { mode: 0o600 });
  return stdout.trim();
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

function explain() {
  const message = `{"id":"curl-1","from":"curl","text":"hello"}`;
  console.error(`
  Open            ${SITE}
                  Your browser does not know this gateway's own certificate authority yet: accept
                  the warning, or trust the authority once (untrust undoes it):
                  node dist/cli/main.js trust --config Hubfile.example
                  Its certificate, to import by hand:
                  ${rootCertificate}

  Live            ${LIVE}, in two windows: plain HTML without a script, made live
                  by two lines of the Hubfile

  Change the page curl --cacert .hubgate/pki/local/root.crt \\
                    -H "Authorization: Bearer $(cat .hubgate/publisher.token)" \\
                    --data-urlencode topic=${SITE}/messages/curl-1 \\
                    --data-urlencode 'data=${message}' \\
                    ${HUB}
  or              node dist/cli/main.js publish --hub ${HUB} \\
                    --cacert .hubgate/pki/local/root.crt --token @.hubgate/publisher.token \\
                    --topic ${SITE}/messages/cli-1 --data '${message.replaceAll('curl', 'cli')}'

  Look inside     ${HUB}/debug/
                  subscribe, publish, and see what a token allows; the link at the end of the
                  page ${SITE} brings the token .hubgate/publisher.token along

  Configure       Hubfile.example (${join(root, 'Hubfile.example')}): save it, and it is live.

  Ctrl-C ends the gateway and the app.
`);
}

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { documentedBlocks } from '../support/documented-blocks.ts';
import { freePort } from '../support/free-port.ts';
import { type OrdinaryUser, ordinaryUser } from '../support/ordinary-user.ts';
import { root, type TestProcess } from '../support/process.ts';
import { programPath } from '../support/program.ts';

const TUTORIAL = 'docs/tutorial.md';
/** Exit code of curl. */
const CANNOT_CONNECT = 7;
/** A line of the log that asks the reader for something. */
const COMPLAINT = /"level":"(?:warn|error|fatal)"/;
const ID = /urn:uuid:[0-9a-f-]{36}$/m;

describe('the first hour of a user without privileges, with an empty home', () => {
  it('docs/tutorial.md leads to a live page, word for word', async (test) => {
    const user = ordinaryUser(test, 'global');
    if (user === null) return;
    const ports = await otherPorts(['8080', '3000']);
    const [appJs] = blocksOf(TUTORIAL, 'js').map(ports.in);
    const [hubfile] = blocksOf(TUTORIAL, 'hubfile').map(ports.in);
    const [app, gateway, listen, publish, ...more] = blocksOf(TUTORIAL, 'sh').map(ports.in);
    assert.ok(appJs && hubfile && app && gateway && listen && publish);
    assert.deepEqual(more, []);
    user.write('app.mjs', appJs);
    user.write('Hubfile', ports.withAdmin(hubfile));
    await user.start(app).process.says('app: ready');
    const running = user.start(gateway);
    await running.process.says('Listening on');
    assert.doesNotMatch(running.process.output, COMPLAINT);
    const site = `http://localhost:${ports.of('8080')}/`;
    // The page has the script, and a form that is sent is announced to anyone who listens.
    assert.match((await user.run(`curl -sS -H 'Accept: text/html' ${site}`)).stdout, /live\.js/);
    const subscriber = user.start(listen).process;
    // Until the subscriber has come and hears of it.
    while (!ID.test(subscriber.output)) {
      const form = await user.run(`curl -sS -o /dev/null -w '%{http_code}' -d note=Bread ${site}`);
      assert.equal(form.stdout, '303', form.stderr);
    }
    const { stdout, stderr } = await user.run(publish);
    assert.match(stdout, ID, stderr);
    await subscriber.says('hello');
    await changes(user, 'Hubfile', running.process, `curl -sS ${site}`);
    await running.interrupt();
    assert.equal(running.process.child.exitCode, 0, running.process.output);
  });

  it('the README: npm start, and the commands that follow', async (test) => {
    const user = ordinaryUser(test, 'checkout');
    if (user === null) return;
    const ports = await otherPorts(['8443', '8080']);
    for (const name of ['Hubfile.example', 'scripts/start.mjs', 'README.md']) {
      user.write(name, ports.in(user.read(name)));
    }
    user.write('Hubfile.example', ports.withAdmin(user.read('Hubfile.example')));
    const [start, publish, listen, link, npmTest, ...more] = blocksOf('README.md', 'sh').map(
      ports.in,
    );
    assert.ok(start && publish && listen && link);
    assert.equal(npmTest, 'npm test\n');
    assert.deepEqual(more, []);
    const running = user.start(start);
    await running.process.says('Ctrl-C ends');
    assert.match((await user.run(publish)).stdout, ID);
    const stream = user.start(listen);
    await stream.process.says('data: {"id":"curl-1","from":"curl","text":"hello"}\n');
    const linked = (await user.run(link)).stdout;
    assert.match(linked, /^link: <\/\.well-known\/hub>; rel="hub"; last-event-id="urn:uuid:/i);
    // What `npm start` has printed is to be copied too.
    const printed = /Change the page (.*?)\n {2}or {14}(.*?)\n\n/s.exec(running.process.output);
    const [, byCurl = '', byProgram = ''] = printed ?? [];
    assert.match((await user.run(byCurl)).stdout, ID);
    assert.match((await user.run(byProgram)).stdout, ID);
    await stream.process.says('data: {"id":"cli-1","from":"cli","text":"hello"}\n');
    const curl = `curl -sS --cacert .hubgate/pki/local/root.crt https://localhost:${ports.of('8443')}/`;
    await changes(user, 'Hubfile.example', running.process, curl);
    assert.equal(stream.process.child.exitCode, null, 'the stream has ended');
    await running.interrupt();
    const { code, stderr } = await user.run(curl);
    assert.equal(code, CANNOT_CONNECT, stderr);
  });

  it('the Hubfile of the README is valid', async (test) => {
    const user = ordinaryUser(test, 'global');
    if (user === null) return;
    const [hubfile = ''] = blocksOf('README.md', 'hubfile');
    user.write('Hubfile', hubfile);
    const key = 'a-key-of-the-test-0123456789abcdef';
    const env = `HUB_PUBLISHER_JWT_KEY=${key} HUB_SUBSCRIBER_JWT_KEY=${key}`;
    const { code, stderr } = await user.run(`${env} hubgate validate --config Hubfile`);
    assert.deepEqual([code, stderr], [0, '']);
  });

  it('validate warns of a log that this user may not write', async (test) => {
    const user = ordinaryUser(test, 'global');
    if (user === null) return;
    for (const [log, warned] of [
      ['/etc/hubgate-test.log', 1],
      ['access.log', 0],
    ] as const) {
      user.write('Hubfile', `http://localhost:8080 {\n\tlog {\n\t\toutput file ${log}\n\t}\n}\n`);
      const { code, stdout, stderr } = await user.run('hubgate validate --config Hubfile');
      assert.equal(code, 0, stderr);
      const found = `${stdout}${stderr}`.match(/warning: cannot write the log to/g);
      assert.equal(found?.length ?? 0, warned);
    }
  });

  it('docs/install.md: init --yes, and the command that it prints', async (test) => {
    const user = ordinaryUser(test, 'global');
    if (user === null) return;
    const { code, stdout, stderr } = await user.run('hubgate init --yes');
    assert.equal(code, 0, stderr);
    // The page shows the very line.
    const [init, next] = blocksOf('docs/install.md', 'text');
    assert.equal(init, 'hubgate init\n');
    assert.equal(stdout, next);
    await serves(user, stdout);
  });

  it('init on a terminal with an empty answer to each question, installed in the project', async (test) => {
    const user = ordinaryUser(test, 'local');
    if (user === null || programPath(test, 'script', 'bsdutils') === null) return;
    // Three times Enter.
    const { code, stdout } = await user.run(
      `printf '\\r\\r\\r' | script --quiet --return --command 'npx hubgate init' /dev/null`,
    );
    assert.equal(code, 0, stdout);
    assert.match(stdout, /\[localhost:8443\].*\[localhost:3000\].*\[yes\]/s);
    const [, next = ''] = /Next:\s+(npx hubgate run .*?)\s*$/m.exec(stdout) ?? [];
    assert.notEqual(next, '', stdout);
    await serves(user, next);
  });

  it('init without a terminal says which flags it needs', async (test) => {
    const user = ordinaryUser(test, 'global');
    if (user === null) return;
    const { code, stderr } = await user.run(`yes '' | hubgate init`);
    assert.equal(code, 64);
    assert.match(stderr, /Not a terminal: pass --site, .* or --yes/);
  });
});

/** What `init` has written serves once the next command is given as it was printed. */
async function serves(user: OrdinaryUser, next: string): Promise<void> {
  const ports = await otherPorts(['8443', '3000']);
  user.write('Hubfile', ports.withAdmin(ports.in(user.read('Hubfile'))));
  const [appJs = ''] = blocksOf(TUTORIAL, 'js').map(ports.in);
  user.write('app.mjs', appJs);
  await user.start('node app.mjs').process.says('app: ready');
  const running = user.start(next);
  await running.process.says('Listening on');
  assert.doesNotMatch(running.process.output, COMPLAINT);
  const site = `https://localhost:${ports.of('8443')}`;
  const { stdout } = await user.run(`curl -sS --cacert .hubgate/pki/local/root.crt ${site}/`);
  assert.match(stdout, /<h1>Notes<\/h1>/);
  const hub = `${site}/.well-known/hub`;
  const program = next.replace(/ run .*/s, '');
  const { stdout: id, stderr } = await user.run(
    `. ./hubgate.env && ${program} publish --hub ${hub} --cacert .hubgate/pki/local/root.crt \
      --token "$(${program} token --iss ${site} --aud ${hub} --key "$HUB_PUBLISHER_JWT_KEY" --publish '*')" \
      --topic news --data hello`,
  );
  assert.match(id, ID, stderr);
  // npx passes Ctrl-C on to a gateway that has heard it from the terminal.
  await running.interrupt();
  assert.match(running.process.output, /"msg":"Stopped"/);
  assert.doesNotMatch(running.process.output, COMPLAINT);
}

/**
 * Saves a change, which is live soon, and then a mistake: the log says where it stands, and what was
 * there before goes on serving.
 */
async function changes(
  user: OrdinaryUser,
  file: string,
  gateway: TestProcess,
  curl: string,
): Promise<void> {
  const [, change = '', above = ''] =
    /Write `([^`]+)` above `([^`]+)`/.exec(readFileSync(join(root, TUTORIAL), 'utf8')) ?? [];
  assert.notEqual(change, '');
  const changed = user.read(file).replace(`\t${above}`, `\t${change}\n\t${above}`);
  user.write(file, changed);
  await gateway.says('Configuration reloaded');
  const hello = async (): Promise<void> => {
    assert.equal((await user.run(`${curl}hello`)).stdout, 'Hello');
  };
  await hello();
  const lines = changed.split('\n').length;
  user.write(file, `${changed}nonsense\n`);
  await gateway.says(`${file}:${lines}`);
  await hello();
}

function blocksOf(page: string, ...languages: readonly string[]): readonly string[] {
  return documentedBlocks(page)
    .filter(({ language }) => languages.includes(language))
    .map(({ text }) => text);
}

/** The tests must not take the ports that the pages name; nothing else is changed. */
async function otherPorts(names: readonly string[]) {
  const others = new Map<string, string>();
  for (const name of names) others.set(name, String(await freePort()));
  const admin = await freePort();
  return {
    of: (name: string): string => others.get(name) ?? '',
    in(text: string): string {
      return [...others].reduce((given, [name, other]) => given.replaceAll(name, other), text);
    },
    /** Nor the port of the admin API, which none of the files names. */
    withAdmin: (hubfile: string): string =>
      hubfile.replace(/^\{\n/m, `{\n\tadmin localhost:${admin}\n`),
  };
}

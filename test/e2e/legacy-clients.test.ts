import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { existsSync } from 'node:fs';
import { EventSource } from 'eventsource';
import { SignJWT } from 'jose';
import { freePort } from '../support/free-port.ts';
import { isMissed, programPath } from '../support/program.ts';
import { cli, root, TestProcess } from '../support/process.ts';

const EXAMPLE = join(root, 'examples/from-mercure/Hubfile');
const CADDYFILE = join(root, 'test/caddyfile/reference-hub.caddyfile');
const PUBLISHER_KEY = 'a-key-of-this-test-only-0123456789abcdef';
const SUBSCRIBER_KEY = 'another-key-of-this-test-0123456789abcdef';

interface Place {
  readonly url: string;
  readonly admin: string;
  readonly gateway: TestProcess;
}

interface File {
  readonly hubfileIn: (directory: string) => string;
  /** MERCURE_EXTRA_DIRECTIVES */
  readonly more: string;
}

const files: Readonly<Record<string, File>> = {
  'the example for clients of 0.x, run as it is': {
    hubfileIn: () => EXAMPLE,
    more: 'anonymous\ncors_origins http://localhost:8000',
  },
  'a Caddyfile of the shape of the reference’s image, adapted': {
    more: 'cors_origins http://localhost:8000',
    hubfileIn(directory) {
      const hubfile = join(directory, 'Hubfile');
      const args = ['adapt', '--adapter', 'caddyfile', '--config', CADDYFILE, '--output', hubfile];
      execFileSync(process.execPath, [cli, ...args], { stdio: 'ignore' });
      return hubfile;
    },
  },
};

for (const [name, file] of Object.entries(files)) {
  describe(name, async () => {
    const place = await start(file);

    it('logs at startup what it accepts from them', () => {
      assert.match(place.gateway.output, /This process accepts 0\.x tokens/);
      assert.match(place.gateway.output, /"deprecated_claim":"on"/);
      assert.match(place.gateway.output, /cookie mercureAuthorization, strings, topics, templates/);
    });

    it('serves the same paths beside the hub as the configuration of the container image', async () => {
      const { origin } = new URL(place.url);
      for (const [path, status] of [
        ['/healthz', 200],
        ['/robots.txt', 200],
        ['/nothing', 404],
      ] as const) {
        assert.equal((await fetch(origin + path)).status, status, path);
      }
    });

    it('EventSource with topics and a cookie receives updates that were posted as a form', async (test) => {
      const token = await sign(SUBSCRIBER_KEY, { subscribe: ['https://example.com/users/{id}'] });
      const url = new URL(place.url);
      url.searchParams.append('topic', 'https://example.com/books/{id}');
      url.searchParams.append('topic', 'https://example.com/users/dunglas');
      const received = collect(test, url, { cookie: `mercureAuthorization=${token}` });
      await received.opened;
      const post = async (fields: Record<string, string>): Promise<void> => {
        const publisher = await sign(PUBLISHER_KEY, { publish: ['*'] });
        assert.equal(await postForm(place.url, publisher, fields), 200);
      };
      await post({ topic: 'https://example.com/books/1', data: JSON.stringify({ book: 1 }) });
      await post({ topic: 'https://example.com/films/1', data: 'not asked for' });
      await post({ topic: 'https://example.com/users/dunglas', private: 'on', data: 'private' });
      assert.deepEqual(await received.first(2), ['{"book":1}', 'private']);
    });

    it('a token in the query allows reading too, and only what it grants', async (test) => {
      const token = await sign(SUBSCRIBER_KEY, { subscribe: ['urn:mine:{id}'] });
      const url = new URL(place.url);
      url.searchParams.set('topic', '*');
      url.searchParams.set('authorization', token);
      const received = collect(test, url, {});
      await received.opened;
      const publisher = await sign(PUBLISHER_KEY, { publish: ['urn:{kind}:{id}'] });
      for (const topic of ['urn:theirs:1', 'urn:mine:1']) {
        const fields = { topic, private: 'on', data: topic };
        assert.equal(await postForm(place.url, publisher, fields), 200);
      }
      assert.deepEqual(await received.first(1), ['urn:mine:1']);
      const elsewhere = { topic: 'https://example.com/', data: '' };
      assert.equal(await postForm(place.url, publisher, elsewhere), 403);
    });

    it('a page of another origin publishes with a token in the query', async () => {
      const token = await sign(PUBLISHER_KEY, { publish: ['*'] });
      const { status } = await fetch(`${place.url}?authorization=${token}`, {
        method: 'POST',
        headers: { origin: 'http://localhost:8000' },
        body: new URLSearchParams({ topic: 'https://example.com/a', data: 'x' }),
      });
      assert.equal(status, 200);
    });

    it('counts them in hub_legacy_tokens_total, and logs them', async () => {
      const text = await (await fetch(`${place.admin}/metrics`)).text();
      const count = Number(/^hub_legacy_tokens_total\{hub="default"\} (\d+)$/m.exec(text)?.[1]);
      assert.ok(count >= 6, text);
      assert.match(place.gateway.output, /A 0\.x token was accepted/);
    });

    it('symfony/mercure publishes, and its update arrives', async (test) => {
      const php = programPath(test, 'php', 'php-cli');
      if (php === null) return;
      if (!existsSync('/usr/share/php/Symfony/Component/Mercure/autoload.php')) {
        return isMissed(
          test,
          'symfony/mercure is not installed (apt-get install php-symfony-mercure)',
        );
      }
      const cookie = `mercureAuthorization=${await sign(SUBSCRIBER_KEY, { subscribe: ['urn:{a}'] })}`;
      const received = collect(test, new URL(`${place.url}?topic=urn:php`), { cookie });
      await received.opened;
      const token = await sign(PUBLISHER_KEY, { publish: ['*'] });
      const directory = await mkdtemp(join(tmpdir(), 'hubgate-symfony-'));
      removeWith(test, directory);
      const script = join(directory, 'publish.php');
      await writeFile(script, SYMFONY);
      const { stdout } = await promisify(execFile)(php, [script, place.url, token]);
      assert.equal(stdout, 'urn:id:php');
      assert.deepEqual(await received.first(1, 'news'), ['from PHP']);
    });

    it('pymercure publishes', async (test) => {
      const python = process.env['HUBGATE_TEST_PYTHON'];
      if (python === undefined) {
        test.skip('HUBGATE_TEST_PYTHON names no Python with pymercure');
        return;
      }
      const received = collect(test, new URL(`${place.url}?topic=urn:python`), {});
      await received.opened;
      const token = await sign(PUBLISHER_KEY, { publish: ['*'] });
      await promisify(execFile)(python, ['-c', PYMERCURE, place.url, token]);
      assert.deepEqual(await received.first(1), ['from Python']);
    });
  });
}

const SYMFONY = `<?php
require '/usr/share/php/Symfony/Component/Mercure/autoload.php';
require '/usr/share/php/Symfony/Component/HttpClient/autoload.php';
use Symfony\\Component\\Mercure\\{Hub, Update, Jwt\\StaticTokenProvider};
$hub = new Hub($argv[1], new StaticTokenProvider($argv[2]));
echo $hub->publish(new Update(['urn:php', 'urn:php:2'], 'from PHP', true, 'urn:id:php', 'news', 500));
`;

const PYMERCURE = `
import sys
from pymercure.message import Message
from pymercure.publisher.sync import SyncPublisher
SyncPublisher(sys.argv[1], sys.argv[2]).publish(Message(['urn:python'], 'from Python'))
`;
import { removeWith } from '../support/temporary-directory.ts';

async function start({ hubfileIn, more }: File): Promise<Place> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-legacy-'));
  const [port, adminPort] = [await freePort(), await freePort()];
  const envFile = join(directory, 'mercure.env');
  await writeFile(
    envFile,
    [
      `MERCURE_PUBLISHER_JWT_KEY=${PUBLISHER_KEY}`,
      `MERCURE_SUBSCRIBER_JWT_KEY=${SUBSCRIBER_KEY}`,
      `SERVER_NAME=http://localhost:${port}`,
    ].join('\n'),
  );
  const args = ['run', '--config', hubfileIn(directory), '--envfile', envFile];
  const gateway = new TestProcess([cli, ...args], {
    NODE_OPTIONS: '--conditions=deprecated_claim',
    GLOBAL_OPTIONS: `admin localhost:${adminPort}\nstorage ${directory}`,
    MERCURE_EXTRA_DIRECTIVES: more,
  });
  after(async () => {
    await gateway.end();
    await rm(directory, { recursive: true, force: true });
  });
  await gateway.says('Admin API on');
  return {
    url: `http://localhost:${port}/.well-known/mercure`,
    admin: `http://localhost:${adminPort}`,
    gateway,
  };
}

/** A token as generators of 0.x make it: the claim and nothing else. */
function sign(key: string, mercure: object): Promise<string> {
  const jwt = new SignJWT({ mercure }).setProtectedHeader({ alg: 'HS256', typ: 'JWT' });
  return jwt.sign(new TextEncoder().encode(key));
}

/** Publishes by Node's own client, as documents of 0.x show it. */
async function postForm(
  url: string,
  token: string,
  fields: Record<string, string>,
): Promise<number | undefined> {
  const body = new URLSearchParams(fields).toString();
  const sent = request(url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/x-www-form-urlencoded',
      'content-length': Buffer.byteLength(body),
    },
  });
  sent.end(body);
  const [response] = await once(sent, 'response');
  response.resume();
  return response.statusCode;
}

function collect(test: TestContext, url: URL, headers: Record<string, string>) {
  const data: string[] = [];
  const source = new EventSource(url, {
    fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }),
  });
  test.after(() => source.close());
  for (const type of ['message', 'news']) {
    source.addEventListener(type, (event) => data.push(event.data));
  }
  return {
    opened: once(source, 'open'),
    async first(count: number, type = 'message'): Promise<readonly string[]> {
      while (data.length < count) await once(source, type);
      return data;
    },
  };
}

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { copyFile, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { SignJWT } from 'jose';
import { freePort } from '../support/free-port.ts';
import { cli, root, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEY = 'a-key-of-this-test-only-0123456789abcdef';
const ISSUER = 'https://issuer.example';
const BATCH = 25;
const GO_SSE = 'github.com/tmaxmax/go-sse@v0.11.0';

/** What runs a client; null where it is not at hand, which is said aloud. */
type Program = (test: TestContext, directory: string) => Promise<readonly string[] | null>;

const clients: Readonly<Record<string, Program>> = {
  'npm eventsource': async () => [process.execPath, fixture('eventsource_client.mjs')],
  'npm @microsoft/fetch-event-source': async () => [
    process.execPath,
    fixture('fetch_event_source_client.mjs'),
  ],
  'Python httpx-sse': python('httpx_sse_client.py'),
  'Python sseclient-py': python('sseclient_py_client.py'),
  'Python aiohttp-sse-client2': python('aiohttp_sse_client2_client.py'),
  'Go go-sse': goSse,
  'Java OkHttp': okHttp,
};

describe('third-party clients, across two restarts of the gateway', () => {
  for (const [name, program] of Object.entries(clients)) {
    it(`${name}: loses nothing, receives nothing twice, keeps the order`, async (test) => {
      const directory = await mkdtemp(join(tmpdir(), 'hubgate-restart-'));
      removeWith(test, directory);
      const command = await program(test, directory);
      if (command === null) return;
      const place = await setUp(directory);
      let gateway = await run(test, place);
      const inbox = startClient(test, command, `${place.url}?match=urn:news`);
      await inbox.until('open');
      const expected: string[] = [];
      const publish = async (): Promise<void> => {
        for (let i = 0; i < BATCH; i += 1) {
          const id = `urn:id:${expected.length}`;
          await post(place.url, id);
          expected.push(id);
        }
      };
      await publish();
      for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
        await gateway.end(signal);
        gateway = await run(test, place);
        // It may be there already, or come to what it has missed.
        await publish();
      }
      await inbox.until(expected.at(-1) ?? '');
      assert.deepEqual(
        inbox.lines.filter((line) => line !== 'open'),
        expected,
      );
    });
  }
});

function fixture(name: string): string {
  return fileURLToPath(new URL(`fixtures/clients/${name}`, import.meta.url));
}

function python(name: string): Program {
  return async (test) => {
    const program = process.env['HUBGATE_TEST_PYTHON'];
    if (program !== undefined) return [program, fixture(name)];
    test.skip('HUBGATE_TEST_PYTHON names no Python with the package (pip install, in a venv)');
    return null;
  };
}

async function goSse(test: TestContext, directory: string): Promise<readonly string[] | null> {
  const options = { cwd: directory, timeout: 600_000 };
  try {
    await copyFile(fixture('go_sse_client.go'), join(directory, 'main.go'));
    for (const args of [
      ['mod', 'init', 'client'],
      ['get', GO_SSE],
      ['build', '-o', 'client', '.'],
    ]) {
      await promisify(execFile)('go', args, options);
    }
    return [join(directory, 'client')];
  } catch {
    test.skip('there is not a Go here, or it cannot get the module');
    return null;
  }
}

async function okHttp(test: TestContext, directory: string): Promise<readonly string[] | null> {
  const options = { cwd: directory, timeout: 600_000 };
  const classes = `${directory}:${join(directory, 'jars')}/*`;
  const source = join(directory, 'OkHttpClientMain.java');
  try {
    await copyFile(fixture('okhttp-pom.xml'), join(directory, 'pom.xml'));
    await copyFile(fixture('OkHttpClientMain.java'), source);
    const copying = ['-q', 'dependency:copy-dependencies', '-DoutputDirectory=jars'];
    await promisify(execFile)('mvn', copying, options);
    await promisify(execFile)('javac', ['-cp', classes, source], options);
    return ['java', '-cp', classes, 'OkHttpClientMain'];
  } catch {
    test.skip('there is not a Java with Maven here, or it cannot get the library');
    return null;
  }
}

interface Place {
  readonly url: string;
  readonly hubfile: string;
}

async function setUp(directory: string): Promise<Place> {
  const port = await freePort();
  const hubfile = join(directory, 'Hubfile');
  const text = `{
	storage ${directory}
	admin off
}
http://localhost:${port} {
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt ${KEY}
			}
		}
		anonymous
		transport lmdb
	}
}
`;
  await writeFile(hubfile, text);
  return { url: `http://localhost:${port}/.well-known/hub`, hubfile };
}

async function run(test: TestContext, { hubfile, url }: Place): Promise<TestProcess> {
  const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
  await gateway.says(`:${new URL(url).port}`);
  return gateway;
}

async function post(url: string, id: string): Promise<void> {
  const detail = { type: 'urn:hub:authorization-detail', actions: ['publish'] };
  const claims = { authorization_details: [{ ...detail, topics: [{ match: '*' }] }] };
  const token = await new SignJWT({ ...claims, iss: ISSUER, aud: url })
    .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt' })
    .setExpirationTime('1h')
    .sign(new TextEncoder().encode(KEY));
  const body = new URLSearchParams({ topic: 'urn:news', id, data: id, retry: '50' });
  const headers = { authorization: `Bearer ${token}` };
  const { status } = await fetch(url, { method: 'POST', headers, body });
  assert.equal(status, 200);
}

function startClient(test: TestContext, [program = '', ...args]: readonly string[], url: string) {
  const child = spawn(program, [...args, url], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  test.after(() => child.kill('SIGKILL'));
  const lines: string[] = [];
  let wake = (): void => {};
  const output = createInterface({ input: child.stdout });
  output.on('line', (line) => {
    lines.push(line);
    wake();
  });
  let isOver = false;
  output.on('close', () => {
    isOver = true;
    wake();
  });
  return {
    lines,
    async until(line: string): Promise<void> {
      while (!lines.includes(line)) {
        assert.ok(!isOver, `the client ended before ${line}`);
        await new Promise<void>((resolve) => (wake = resolve));
      }
    },
  };
}

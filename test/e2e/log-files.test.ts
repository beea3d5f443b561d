import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { constants, existsSync, readFileSync, renameSync } from 'node:fs';
import { open, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../support/free-port.ts';
import { cli, commandOf, root, TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

/** Where Node's debugger listens when SIGUSR1 opens it. */
const INSPECTOR_PORT = 9229;

describe('the log and the gateway', () => {
  for (const workers of [1, 2]) {
    it(`a full log disk breaks no request, with workers ${workers}`, async (test) => {
      const { process, get } = await start(test, workers, () => '/dev/full');
      for (let i = 0; i < 20; i += 1) assert.equal(await get(), 'hello');
      await process.says('lines are dropped until it can');
      assert.equal(process.child.exitCode, null);
    });

    it(`SIGUSR1 reopens log files and starts no debugger, with workers ${workers}`, async (test) => {
      const { process, get, log } = await start(test, workers, (directory) =>
        join(directory, 'access.log'),
      );
      await get();
      renameSync(log, `${log}.1`);
      process.child.kill('SIGUSR1');
      await process.says('Log files reopened');
      while (!existsSync(log) || !readFileSync(log, 'utf8').includes('handled request'))
        await get();
      assert.equal(await listens(INSPECTOR_PORT), false);
    });
  }

  it('SIGUSR2 does not stop the gateway', async (test) => {
    const { process, get } = await start(test, 1, () => 'stderr');
    process.child.kill('SIGUSR2');
    await process.says('SIGUSR2 has no effect');
    assert.equal(await get(), 'hello');
  });
});

describe('a log whose reader has stalled', () => {
  /** More lines than a pipe holds. */
  const REQUESTS = 400;
  /** Fields that make a line so long that 200 of them are more than the 1 MB that waits in memory. */
  const LONG = Object.fromEntries(
    Array.from({ length: 10 }, (_, index) => [`x-long-${index}`, 'x'.repeat(1_000)]),
  );

  it('delays neither the start, nor requests, nor the stop: a FIFO', {
    timeout: 60_000,
  }, async (test) => {
    const { process, get, log } = await start(test, 1, createFifo);
    await process.says('cannot be written (ENXIO)');
    assert.equal(await get(), 'hello');
    const reader = await openReader(test, log);
    for (let i = 0; i < REQUESTS; i += 1) assert.equal(await get(), 'hello');
    await process.says('cannot be written (EAGAIN)');
    assert.ok((await reader.lines()).length < REQUESTS);
    while ((await reader.lines()).length === 0) await get();
    await process.says('can be written again');
    for (let i = 0; i < REQUESTS; i += 1) assert.equal(await get(), 'hello');
    assert.equal(await process.end('SIGTERM'), 0);
  });

  it('gets the lines when it reads again, and delays nothing: standard output', {
    timeout: 60_000,
  }, async (test) => {
    const directory = await temporaryDirectory(test);
    const fifo = createFifo(directory);
    const reader = await openReader(test, fifo);
    const { process, get } = await start(test, 1, () => 'stdout', {}, fifo);
    for (let i = 0; i < REQUESTS; i += 1) assert.equal(await get(`/${i}`), 'hello');
    const uris: string[] = [];
    while (uris.length < REQUESTS) uris.push(...(await reader.lines()).map(uriOf));
    assert.deepEqual(
      uris,
      Array.from({ length: REQUESTS }, (_, i) => `/${i}`),
    );
    for (let i = 0; i < REQUESTS; i += 1) assert.equal(await get(), 'hello');
    assert.equal(await process.end('SIGTERM'), 0);
  });

  it('gets lines again when it has been replaced: standard output', async (test) => {
    const fifo = createFifo(await temporaryDirectory(test));
    const first = await openReader(test, fifo);
    const { process, get } = await start(test, 1, () => 'stdout', {}, fifo);
    assert.equal(await get('/first'), 'hello');
    while ((await first.lines()).length === 0) await delay(10);
    await first.close();
    assert.equal(await get('/nobody-reads'), 'hello');
    assert.equal(await get('/nobody-reads'), 'hello');
    const second = await openReader(test, fifo);
    assert.equal(await get('/second'), 'hello');
    const uris: string[] = [];
    while (!uris.includes('/second')) uris.push(...(await second.lines()).map(uriOf));
    assert.ok(uris.includes('/nobody-reads'));
    assert.equal(await process.end('SIGTERM'), 0);
  });

  it('ends nothing when it has gone, nor does a full disk: standard error', async (test) => {
    for (const stderr of ['2>/dev/full', '2> >(:)']) {
      const directory = await temporaryDirectory(test);
      const port = await freePort();
      const hubfile = join(directory, 'Hubfile');
      await writeFile(
        hubfile,
        `{
	storage ${directory}
	admin off
	log {
		output stdout
	}
}
http://localhost:${port} {
	log {
		output file /dev/full
	}
	respond hello
}
`,
      );
      const [program, args] = commandOf([cli, 'run', '--config', hubfile]);
      const line = ['-c', `exec "$0" "$@" ${stderr}`, program, ...args];
      const process = new TestProcess(line, {}, root, { program: 'bash' });
      test.after(() => process.end('SIGKILL'));
      await process.says('Listening on');
      for (let i = 0; i < 3; i += 1) {
        assert.equal(await (await fetch(`http://localhost:${port}/`)).text(), 'hello');
      }
      assert.equal(await process.end('SIGTERM'), 0);
    }
  });

  it('loses what exceeds the limit, and says how much: standard output', {
    timeout: 60_000,
  }, async (test) => {
    const fifo = createFifo(await temporaryDirectory(test));
    const reader = await openReader(test, fifo);
    const { process, get } = await start(test, 1, () => 'stdout', {}, fifo);
    for (let i = 0; i < 200; i += 1) assert.equal(await get('/', LONG), 'hello');
    let lines = 0;
    const lost = /Nobody has read the log for a while; lines lost: (\d+)/;
    while (!lost.test(process.output)) lines += (await reader.lines()).length;
    lines += (await reader.lines()).length;
    assert.equal(lines + Number(lost.exec(process.output)?.[1]), 200);
    assert.ok(lines > 50, `${lines} lines were kept`);
    assert.equal(await process.end('SIGTERM'), 0);
  });

  it('is not blamed for a disk that is full: standard output', async (test) => {
    const { process, get } = await start(test, 1, () => 'stdout', {}, '/dev/full');
    for (let i = 0; i < 200; i += 1) assert.equal(await get('/', LONG), 'hello');
    assert.equal(await process.end('SIGTERM'), 0);
    assert.doesNotMatch(process.output, /lines lost/);
  });

  function createFifo(directory: string): string {
    const path = join(directory, 'log.fifo');
    execFileSync('mkfifo', [path]);
    return path;
  }

  function uriOf(line: string): string {
    return JSON.parse(line)['url.path'];
  }

  /** Opens the FIFO and reads only when it is asked. */
  async function openReader(test: TestContext, path: string) {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    test.after(() => file.close());
    let rest = '';
    return {
      close: () => file.close(),
      /** The complete lines that the FIFO holds now. */
      async lines(): Promise<string[]> {
        const buffer = Buffer.alloc(1024 * 1024);
        const { bytesRead } = await file.read(buffer).catch((error: NodeJS.ErrnoException) => {
          if (error.code !== 'EAGAIN') throw error;
          return { bytesRead: 0 };
        });
        const lines = (rest + buffer.toString('utf8', 0, bytesRead)).split('\n');
        rest = lines.pop() ?? '';
        return lines;
      },
    };
  }
});

describe('the log', () => {
  it('says where the metrics are, and which upstream failed for which other one', async (test) => {
    const directory = await temporaryDirectory(test);
    const app = createServer((_, response) => response.end('hello'));
    test.after(() => void app.close());
    await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
    const [site, metrics, gone] = [await freePort(), await freePort(), await freePort()];
    const alive = (app.address() as AddressInfo).port;
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{
	storage ${directory}
	admin off
	metrics 127.0.0.1:${metrics}
}
http://localhost:${site} {
	reverse_proxy 127.0.0.1:${gone} 127.0.0.1:${alive} {
		lb_policy first
	}
}
`,
    );
    const process = new TestProcess([cli, 'run', '--config', hubfile]);
    test.after(() => process.end());
    await process.says(`Metrics on http://127.0.0.1:${metrics}`);
    assert.equal(await (await fetch(`http://localhost:${site}/`)).text(), 'hello');
    const line = JSON.parse(await process.lineWith(['another attempt succeeded']));
    const hosts = [line.upstream, line.answeredBy];
    assert.deepEqual(hosts, [`127.0.0.1:${gone}`, `127.0.0.1:${alive}`]);
  });
});

describe('a signal that arrives while the gateway starts', () => {
  for (const signal of ['SIGHUP', 'SIGUSR1', 'SIGUSR2']) {
    it(`neither ends it nor leaves a debugger open: ${signal} while the program is loaded`, {
      timeout: 60_000,
    }, async (test) => {
      // The first thing that the program does is to set flags of V8.
      await startWith(
        test,
        `import v8 from 'node:v8';
        import { syncBuiltinESMExports } from 'node:module';
        const { setFlagsFromString } = v8;
        let isSent = false;
        v8.setFlagsFromString = (flags) => {
          if (!isSent) process.kill(process.pid, '${signal}');
          isSent = true;
          setFlagsFromString(flags);
        };
        syncBuiltinESMExports();`,
      );
    });
  }

  it('leaves no debugger open: SIGUSR1 before the program runs', {
    timeout: 60_000,
  }, async (test) => {
    await startWith(test, 'process.kill(process.pid, "SIGUSR1");');
  });

  async function startWith(test: TestContext, code: string): Promise<void> {
    const preload = `data:text/javascript,${encodeURIComponent(code)}`;
    const { process, get } = await start(test, 1, () => 'stderr', {
      NODE_OPTIONS: `--inspect-port=0 --import ${preload}`,
    });
    assert.equal(await get(), 'hello');
    const port = /Debugger listening on ws:\/\/127\.0\.0\.1:(\d+)/.exec(process.output)?.[1];
    // It is closed soon after it has been opened.
    if (port === undefined) return;
    while (await listens(Number(port))) await delay(50);
  }
});

async function start(
  test: TestContext,
  workers: number,
  logIn: (directory: string) => string,
  env: NodeJS.ProcessEnv = {},
  stdout: string | null = null,
) {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const log = logIn(directory);
  const output = log === 'stderr' || log === 'stdout' ? log : `file ${log}`;
  const hubfile = join(directory, 'Hubfile');
  await writeFile(
    hubfile,
    `{
	storage ${directory}
	admin off
	workers ${workers}
}
http://localhost:${port} {
	log {
		output ${output}
	}
	respond hello
}
`,
  );
  const args = [cli, 'run', '--config', hubfile];
  const process = stdout === null ? new TestProcess(args, env) : redirected(stdout, args);
  test.after(() => process.end('SIGKILL'));
  await process.says('Listening on');
  const get = async (path = '/', headers: Record<string, string> = {}): Promise<string> =>
    (await fetch(`http://localhost:${port}${path}`, { headers })).text();
  return { process, get, log };
}

/** Its standard output is a file. Node itself would give it a socket. */
function redirected(stdout: string, args: readonly string[]): TestProcess {
  const [program, given] = commandOf(args);
  const line = ['-c', 'exec "$@" >"$0"', stdout, program, ...given];
  return new TestProcess(line, {}, root, { program: 'sh' });
}

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { cli, startProcess } from '../support/process.ts';

describe('access log', () => {
  it('writes a line for each exchange, without what opens doors', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-access-'));
    test.after(() => rm(directory, { recursive: true, force: true }));
    const port = await freePort();
    const [file, hubfile] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}\n\tadmin off\n}\nhttp://localhost:${port} {\n\tlog {\n\t\toutput file ${file}\n\t\tformat json\n\t}\n\terror /broken 503\n\trespond ok\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const url = `http://localhost:${port}`;
    await fetch(`${url}/a?x=1&access_token=top-secret&y=2`, {
      headers: {
        authorization: 'Bearer top-secret',
        cookie: 'session=top-secret',
        'x-plain': 'shown',
      },
    });
    await fetch(`${url}/b?%61uthorization=top-secret&Token=top-secret&=&a&b+c=d?e`);
    await fetch(`${url}/broken`);
    assert.equal(await gateway.end('SIGTERM'), 0);
    const text = await readFile(file, 'utf8');
    assert.equal(text.includes('top-secret'), false);
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ level, method, uri, status, headers }) => [
        level,
        method,
        uri,
        status,
        headers['x-plain'],
      ]),
      [
        ['info', 'GET', '/a?x=1&access_token=REDACTED&y=2', 200, 'shown'],
        ['info', 'GET', '/b?%61uthorization=REDACTED&Token=REDACTED&=&a&b+c=d?e', 200, undefined],
        ['error', 'GET', '/broken', 503, undefined],
      ],
    );
    assert.equal(lines[0].headers.authorization, 'REDACTED');
    assert.equal((await stat(file)).mode & 0o777, 0o600);
  });
});

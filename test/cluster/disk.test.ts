import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { mkdtempSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { askHealth, openStream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { patchHistory } from '../support/lmdb-files.ts';
import { cli, runCommand, startProcess, type TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'a publisher key of more than 32 bytes, for tests';
const ISSUER = 'https://a.example';

interface Running {
  readonly url: string;
  readonly hubfile: string;
  /** Of the site beside the one with the hub. */
  readonly other: string;
  readonly process: TestProcess;
  ready(): Promise<number>;
  /** What the readiness of the gateway itself says; it stays ready while its hub is out of order. */
  gatewayStatus(): Promise<string>;
  publish(id: string): Promise<number>;
}

async function start(test: TestContext, history: string): Promise<Running> {
  const directory = await temporaryDirectory(test);
  const [port, other, metrics] = [await freePort(), await freePort(), await freePort()];
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{
	admin off
	metrics localhost:${metrics}
	storage ${directory}
	grace_period 1s
}
http://localhost:${other} {
	respond "the other site"
}
http://localhost:${port} {
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "${KEY}"
			}
		}
		anonymous
		cookie_name hub
		transport lmdb {
			path ${history}
		}
	}
}
`,
  );
  const process = startProcess(test, [cli, 'run', '--config', file]);
  await process.says('Listening on');
  const url = `http://localhost:${port}/.well-known/hub`;
  const token = await signToken(KEY, {
    iss: ISSUER,
    aud: url,
    authorization_details: [
      { type: 'urn:hub:authorization-detail', actions: ['publish'], topics: [{ match: '*' }] },
    ],
  });
  return {
    url,
    hubfile: file,
    other: `http://localhost:${other}/`,
    process,
    ready: async () => (await askHealth(`http://localhost:${metrics}/hub/health/ready`)).status,
    async gatewayStatus() {
      const answer = await askHealth(`http://localhost:${metrics}/health/ready`);
      assert.equal(answer.status, 200);
      return (JSON.parse(answer.body) as { readonly status: string }).status;
    },
    publish: async (id) => {
      const answer = await fetch(url, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
        body: new URLSearchParams({ topic: 'a', id, data: 'x'.repeat(8_000) }),
      });
      await answer.text();
      return answer.status;
    },
  };
}

/** Where a file system of 4 MiB in memory is; null where this user may not mount one. */
function smallDisk(test: TestContext): string | null {
  const place = mkdtempSync(join(tmpdir(), 'hubgate-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', place]).status === 0;
  test.after(() => {
    if (mounted) execFileSync('umount', ['-l', place]);
    rmdirSync(place);
  });
  if (mounted) return place;
  test.skip('only root may mount a file system');
  return null;
}

describe('the disk of a history', () => {
  it('is full, and has space again: nothing acknowledged is lost, streams stay open, and the hub recovers by itself', async (test) => {
    const place = smallDisk(test);
    if (place === null) return;
    const hub = await start(test, join(place, 'history'));
    const stream = await openStream(test, `${hub.url}?match=a`);
    const acknowledged: string[] = [];
    const publish = async (id: string): Promise<number> => {
      const status = await hub.publish(id);
      if (status === 200) acknowledged.push(id);
      return status;
    };
    for (let count = 0; count < 10; count += 1) assert.equal(await publish(`before-${count}`), 200);
    while ((await hub.ready()) !== 200);
    const filler = join(place, 'filler');
    assert.throws(() => writeFileSync(filler, Buffer.alloc(8 * 1024 * 1024)), { code: 'ENOSPC' });
    let status = 200;
    for (let count = 0; status === 200; count += 1) status = await publish(`full-${count}`);
    assert.equal(status, 503);
    assert.equal(await hub.ready(), 503);
    assert.match(hub.process.output, /is the disk full\?/);
    assert.doesNotMatch(hub.process.output, /^\s+at .*:\d+:\d+/m, 'no stack trace');
    await rm(filler);
    for (let count = 0; status !== 200; count += 1) status = await publish(`again-${count}`);
    assert.equal(await publish('last'), 200);
    while ((await hub.ready()) !== 200);
    await hub.process.says('"Updates can be stored again"');
    assert.equal(hub.process.output.split('"An update was not stored"').length, 2, 'said once');
    await stream.untilId('last');
    assert.deepEqual(stream.ids, acknowledged, 'an open stream has got exactly these');
    const replay = await openStream(test, `${hub.url}?match=a&last_event_id=earliest`);
    assert.deepEqual(await replay.untilId('last'), acknowledged);
  });

  it('is almost full when the history is created: the gateway runs, and the hub recovers by itself', async (test) => {
    const place = smallDisk(test);
    if (place === null) return;
    // The lock takes four pages of 4 KiB. LMDB needs more than one for the file.
    for (const pages of [4, 5]) {
      const filler = join(place, 'filler');
      writeFileSync(filler, Buffer.alloc((1024 - pages) * 4096));
      const hub = await start(test, join(place, `history-${pages}`));
      assert.equal((await fetch(hub.other)).status, 200);
      assert.equal(await hub.publish('full'), 503);
      await rm(filler);
      while ((await hub.publish('again')) !== 200);
      assert.equal(await hub.process.end('SIGTERM'), 0);
      await rm(join(place, `history-${pages}`), { recursive: true });
    }
  });

  it('is full of the history itself: the hub is not ready while it refuses updates', async (test) => {
    const place = smallDisk(test);
    if (place === null) return;
    const hub = await start(test, join(place, 'history'));
    for (let count = 0; (await hub.publish(`update-${count}`)) === 200; count += 1);
    for (let count = 0; count < 5; count += 1) {
      assert.equal(await hub.publish(`refused-${count}`), 503);
      assert.equal(await hub.ready(), 503);
    }
  });

  it('is read-only: the hub responds 503 with the reason, other sites are served, and it recovers when the disk is writable', async (test) => {
    const place = smallDisk(test);
    if (place === null) return;
    const history = join(place, 'history');
    const first = await start(test, history);
    assert.equal(await first.publish('a'), 200);
    await first.process.end();
    execFileSync('mount', ['-o', 'remount,ro', place]);

    const hub = await start(test, history);
    assert.match(hub.process.output, /cannot be used because of its disk \(Read-only file system/);
    assert.equal(await hub.publish('b'), 503);
    assert.equal(await hub.ready(), 503);
    assert.equal(await hub.gatewayStatus(), 'degraded');
    assert.equal(await (await fetch(hub.other)).text(), 'the other site');
    const stream = await openStream(test, `${hub.url}?match=a`);

    execFileSync('mount', ['-o', 'remount,rw', place]);
    await hub.process.says('The history can be used again');
    assert.equal(await hub.publish('c'), 200);
    while ((await hub.ready()) !== 200);
    assert.deepEqual(await stream.untilId('c'), ['c'], 'the stream was open all the while');
    const replay = await openStream(test, `${hub.url}?match=a&last_event_id=earliest`);
    assert.deepEqual(await replay.untilId('c'), ['a', 'c']);
    assert.equal(await hub.process.end(), 0);
  });

  it('has a corrupt byte: the hub responds 503 with the reason, other sites are served, and it recovers with a copy', async (test) => {
    const history = join(await temporaryDirectory(test), 'history');
    const first = await start(test, history);
    assert.equal(await first.publish('a'), 200);
    await first.process.end();
    const file = join(history, 'history.mdb');
    const copy = await readFile(file);
    await patchHistory(history, (pages) => pages.u32(pages.root('log'), 7));

    const hub = await start(test, history);
    assert.match(
      hub.process.output,
      /page \d+ of history\.mdb is damaged: it has the number of another page\. .*hubgate history import/,
    );
    assert.equal(await hub.publish('b'), 503);
    assert.equal(await hub.ready(), 503);
    assert.equal(await hub.gatewayStatus(), 'degraded');
    assert.equal(await (await fetch(hub.other)).text(), 'the other site');
    const stream = await openStream(test, `${hub.url}?match=a`);
    const told = hub.process.output.match(/is damaged/g)?.length;
    const verified = await runCommand(['history', 'verify', '--config', hub.hubfile]);
    assert.notEqual(verified.code, 0);
    assert.match(verified.stderr, /page \d+ of history\.mdb is damaged/);

    await writeFile(`${file}.copy`, copy);
    await rename(`${file}.copy`, file);
    await hub.process.says('The history can be used again');
    assert.equal(hub.process.output.match(/is damaged/g)?.length, told, 'told once');
    assert.equal(await hub.publish('c'), 200);
    while ((await hub.ready()) !== 200);
    assert.deepEqual(await stream.untilId('c'), ['c'], 'the stream was open all the while');
    const replay = await openStream(test, `${hub.url}?match=a&last_event_id=earliest`);
    assert.deepEqual(await replay.untilId('c'), ['a', 'c']);
    assert.equal(await hub.process.end(), 0);
  });
});

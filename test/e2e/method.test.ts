import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { removeWith } from '../support/temporary-directory.ts';

describe('method HEAD for a client that sends GET', () => {
  for (const directives of ['', 'cache', 'encode gzip']) {
    it(`leads to an empty response of a file${directives === '' ? '' : `, with ${directives}`}`, async (test) => {
      const files = await mkdtemp(join(tmpdir(), 'hubgate-method-'));
      removeWith(test, files);
      await writeFile(join(files, 'a.txt'), 'a text '.repeat(1000));
      const origin = `http://127.0.0.1:${await freePort()}`;
      const lines = `root * ${files}\n${directives}\nmethod HEAD\nfile_server`;
      await startGateway(test, `${origin} {\n${lines}\n}\n`);
      for (let round = 0; round < 2; round += 1) {
        const got = await send(`${origin}/a.txt`);
        assert.deepEqual([got.status, got.body], [200, '']);
        assert.match(String(got.headers['content-type']), /^text\/plain/);
      }
      const head = await send(`${origin}/a.txt`, { method: 'HEAD' });
      assert.equal(head.status, 200);
    });
  }
});

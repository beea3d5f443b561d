import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'the key of publishers and subscribers, long enough';

describe('a token of the playground (hubfile.md, playground)', () => {
  for (const workers of [1, 2]) {
    it(`stops working with the option, and stays invalid when the option returns: ${workers} workers`, {
      skip: workers > 1 && process.platform !== 'linux',
    }, async (test) => {
      const directory = await temporaryDirectory(test);
      const file = join(directory, 'Hubfile');
      const port = await freePort();
      const write = (lines: string) =>
        writeFile(
          file,
          `{
	workers ${workers}
	admin off
	storage ${directory}/storage
	grace_period 1s
}
http://localhost:${port} {
	hub {
		issuer https://issuer.example {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		cookie_name hub_token
		${lines}
	}
}
`,
        );
      await write('playground');
      const gateway = startProcess(test, [cli, 'run', '--config', file]);
      await gateway.says('Listening on');
      const hub = `http://localhost:${port}/.well-known/hub`;
      const load = async (lines: string) => {
        const said = gateway.output.length;
        await write(lines);
        await gateway.says('Configuration reloaded', said);
      };
      const token = async () => (await send(`${hub}/debug/playground-token`)).body;
      /** Of several connections, so that every worker has its say. */
      const statusesWith = async (bearer: string) => {
        const headers = [['Authorization', `Bearer ${bearer}`]] as const;
        const statuses = new Set<number>();
        for (let i = 0; i < 8 * workers; i += 1) {
          statuses.add((await openStream(test, `${hub}?match=news`, { headers })).status);
        }
        return [...statuses];
      };
      const first = await token();
      assert.deepEqual(await statusesWith(first), [200]);
      await load('playground\n\t\theartbeat 50s');
      assert.deepEqual(await statusesWith(first), [200], 'another change');
      await load('anonymous');
      assert.deepEqual(await statusesWith(first), [401]);
      await load('playground');
      assert.deepEqual(await statusesWith(first), [401], 'the option is back');
      assert.deepEqual(await statusesWith(await token()), [200]);
    });
  }
});

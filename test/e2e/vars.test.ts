import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

const DIRECTIVES = `
	vars last one
	vars /shop/* tenant shop
	vars tenant public
	vars {
		greeting "hi {http.request.header.X-Name}, {http.vars.tenant}"
		last two
	}
	@shop vars tenant shop
	@named vars {http.request.header.X-Name} ada {http.vars.last}
	respond @shop "shop {http.vars.tenant} {http.vars.unset}."
	respond @named "named {http.vars.last}"
	respond "{http.vars.greeting}"
`;

describe('vars', () => {
  it('are placeholders and conditions, and mean what they mean to Caddy', async (test) => {
    const port = await freePort();
    await startGateway(test, `http://127.0.0.1:${port} {${DIRECTIVES}}\n`);
    const caddy = await startCaddy(test, DIRECTIVES);
    if (caddy === null) return;
    for (const [path, name, body] of [
      ['/', '', 'hi , public'],
      ['/', 'bob', 'hi bob, public'],
      ['/', 'ada', 'named two'],
      ['/', 'two', 'named two'],
      ['/shop/x', '', 'shop shop .'],
    ] as const) {
      const headers = name === '' ? [] : [['X-Name', name] as const];
      const own = await send(`http://127.0.0.1:${port}${path}`, { headers });
      const theirs = await send(`${caddy}${path}`, { headers });
      assert.deepEqual([own.status, own.body], [200, body]);
      assert.deepEqual([theirs.status, theirs.body], [own.status, own.body], `Caddy: ${path}`);
    }
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

const DIRECTIVES = `
	map {path} {tenant} {tier} {
		/shop shop gold
		~^/t/([a-z]+)/([0-9]+) "\${1}" "n\${2}"
		/part - silver
		default public basic
	}
	map {path} {bare} {
		/shop yes
	}
	@s vars_regexp found {tenant} ^s(h.*)
	respond @s "{http.regexp.found.1} {tier} {bare}."
	respond "{tenant} {tier} {bare}."
`;

describe('map and vars_regexp', () => {
  it('sets variables whose text contains a later destination', async (test) => {
    const origin = `http://127.0.0.1:${await freePort()}`;
    const directives = `
	map {path} {first} {second} {
		default "x{second}" "y"
	}
	map {path} {third} {
		default "z{second}"
	}
	respond "{first} {vars.first} {vars.third}"
`;
    await startGateway(test, `${origin} {${directives}}\n`);
    assert.equal((await send(`${origin}/`)).body, 'xy xy zy');
  });

  it('mean the same as in Caddy', async (test) => {
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${DIRECTIVES}}\n`);
    const caddy = await startCaddy(test, DIRECTIVES);
    for (const [path, body] of [
      ['/', 'public basic .'],
      ['/shop', 'hop gold yes.'],
      ['/t/abc/12', 'abc n12 .'],
      ['/t/ABC/12', 'public basic .'],
      ['/part', 'public silver .'],
    ] as const) {
      assert.equal((await send(`${origin}${path}`)).body, body, path);
      if (caddy !== null)
        assert.equal((await send(`${caddy}${path}`)).body, body, `Caddy: ${path}`);
    }
  });
});

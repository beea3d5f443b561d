import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

const SITE = `
	@old path_regexp old (?s)^/old/(.*)$
	route {
		redir @old /{re.old.1}
		redir /query /{query.to}
		redir /cookie /{cookie.c}
		redir /field /{header.X-To}?u={header.X-To}
		redir /whole {query.to}
		redir /path* {path}/
		redir /cdn //cdn.example/{query.to}
		redir /next /login?u={query.u}&back={uri}&{query}#{query.u}
		redir /away https://www.example{uri}
		handle_path /stripped/* {
			redir {uri}
		}
		header /header* Location /{query.to}
		header /header* +Location {query.to}
		header /header/changed Location ^.(.*)$ $1
		respond /header* 302
		respond "none"
	}
`;

describe('a redirect', () => {
  it('never leads to another host through the value of a placeholder', async (test) => {
    const port = await freePort();
    await startGateway(test, `http://127.0.0.1:${port} {${SITE}}\n`);
    const base = `http://127.0.0.1:${port}`;
    const values = [
      '/evil.example',
      '//evil.example/x',
      '\\evil.example',
      '/\\evil.example',
      '\t/evil.example',
      '\n\\evil.example',
      '\r\t//evil.example',
      ' /evil.example',
      'x/y',
    ];
    for (const value of values) {
      const coded = encodeURIComponent(value);
      const inField = value.replace(/[\r\n]/g, '');
      for (const target of [
        `/old/${coded}`,
        `/query?to=${coded}`,
        '/cookie',
        '/field',
        `/whole?to=${coded}`,
        `/path${value.startsWith(' ') ? '' : coded}`,
        `/stripped/${coded}`,
        `/header?to=${coded}`,
        `/header/changed?to=/${coded}`,
      ]) {
        const { status, rawHeaders } = await send(`${base}/`, {
          target,
          headers: [
            ['X-To', inField],
            ['Cookie', `c=${inField}`],
          ],
        });
        assert.equal(status, 302, target);
        const locations = rawHeaders.filter(
          (_, at) => rawHeaders[at - 1]?.toLowerCase() === 'location',
        );
        assert.ok(locations.length > 0, target);
        for (const location of locations) {
          assert.equal(new URL(location, base).host, `127.0.0.1:${port}`, `${target} ${location}`);
        }
      }
    }
    for (const [target, location] of [
      [
        '/next?u=x%26y%3Dz',
        '/login?u=x%26y%3Dz&back=%2Fnext%3Fu%3Dx%2526y%253Dz&u=x%26y%3Dz#x&y=z',
      ],
      ['/cdn?to=x', '//cdn.example/x'],
      ['/away?a=1', 'https://www.example/away?a=1'],
      ['//pathology/', '/pathology//'],
    ] as const) {
      assert.equal((await send(`${base}/`, { target })).headers.location, location, target);
    }
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startSite } from './site.ts';

const HUBFILE = `http://localhost:{port} {
	hub {
		anonymous
		transport memory
		cookie_name hub
	}
	discovery {
		changes public {
			sync
		}
		live
	}
	reverse_proxy localhost:{app}
}
`;

describe('a hub without keys', () => {
  it('accepts what the gateway announces, and nothing from other publishers', async (test) => {
    const site = await startSite(
      test,
      (request, response) => {
        request.resume();
        response.setHeader('Content-Type', 'text/html').end('<!doctype html><p>');
      },
      { hubfile: HUBFILE },
    );
    const stream = await site.stream('match=*');
    const refused = await site.get('/.well-known/hub', {
      method: 'POST',
      headers: [
        ['Authorization', 'Bearer eyJhbGciOiJub25lIn0.e30.'],
        ['Content-Type', 'application/x-www-form-urlencoded'],
      ],
      body: 'topic=https://example.com/&data=of+anyone',
    });
    assert.equal(refused.status, 405);
    await site.get('/books/7', { method: 'POST' });
    await stream.until(({ text }) => text.includes('books'));
    assert.doesNotMatch(stream.text, /of anyone/);
    assert.match((await site.get('/')).body, /live\.js/);
  });

  it('needs a key if the gateway announces nothing', async (test) => {
    const hubfile = HUBFILE.replace('changes public {\n\t\t\tsync\n\t\t}', '');
    const start = startSite(test, () => {}, { hubfile });
    await assert.rejects(start, /publishers: a JWT key/);
  });
});

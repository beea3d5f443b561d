import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { type Site, startSite } from './site.ts';

const REPORT = '/.well-known/hub/live-report';

function site(test: TestContext, live: string): Promise<Site> {
  const app: RequestListener = (request, response) => {
    request.resume();
    response.writeHead(200, { 'Content-Type': 'text/html', ETag: '"v1"' }).end('<!doctype html>');
  };
  return startSite(test, app, { site: `discovery {\n\t\tchanges public\n\t\tlive ${live}\n\t}` });
}

const BLOCK = (lines: string): string => `{\n\t\t\t${lines}\n\t\t}`;

describe('reports of live pages', () => {
  it('are counted by a word in their query, and logged without any content', async (test) => {
    const { get, log } = await site(test, BLOCK('report'));
    const headers: [string, string][] = [
      ['Referer', 'http://localhost/orders/7?token=s3cret#s3cret'],
    ];
    const body = 's3cret'.repeat(1000);
    const answer = await get(`${REPORT}?withheld=visitor`, { method: 'POST', headers, body });
    assert.deepEqual([answer.status, answer.body], [204, '']);
    const told = log.find(({ fields }) => fields['reason'] === 'visitor');
    assert.deepEqual([told?.level, told?.fields['page']], ['debug', '/orders/7']);
    assert.ok(!JSON.stringify(log).includes('s3cret'));
  });

  it('allow three words, and one method', async (test) => {
    const { get, log } = await site(test, BLOCK('report'));
    const status = async (query: string, method = 'POST'): Promise<number> =>
      (await get(REPORT + query, { method })).status;
    for (const reason of ['visitor', 'script', 'gone']) {
      assert.equal(await status(`?withheld=${reason}`), 204);
    }
    for (const query of ['', '?withheld=', '?withheld=__proto__', '?withheld=other', '?visitor']) {
      assert.equal(await status(query), 400, query);
    }
    assert.equal(await status('?withheld=visitor', 'GET'), 405);
    assert.equal(await status('?withheld=visitor', 'PUT'), 405);
    assert.equal(log.filter(({ fields }) => 'reason' in fields).length, 3);
  });

  it('are limited to 60 per minute and client', async (test) => {
    const { get, log } = await site(test, BLOCK('report'));
    const answers = [];
    for (let count = 0; count < 130; count += 1) {
      answers.push((await get(`${REPORT}?withheld=script`, { method: 'POST' })).status);
    }
    // A minute may end meanwhile.
    const counted = answers.filter((status) => status === 204).length;
    assert.ok(counted >= 60 && counted <= 120, `${counted}`);
    assert.deepEqual(new Set(answers), new Set([204, 429]));
    assert.equal(log.filter(({ fields }) => fields['reason'] === 'script').length, counted);
  });

  it('are not accepted unless they are configured', async (test) => {
    const { get } = await site(test, '');
    assert.equal((await get(`${REPORT}?withheld=visitor`, { method: 'POST' })).status, 404);
    assert.ok(!(await get('/')).body.includes('data-report'));
  });

  it('have their path in the page, whose validator differs from that without reports', async (test) => {
    const [plain, reporting] = [await site(test, ''), await site(test, BLOCK('report'))];
    const [one, other] = [await plain.get('/'), await reporting.get('/')];
    assert.match(other.body, /data-report="\/\.well-known\/hub\/live-report"/);
    assert.notEqual(one.headers.etag, other.headers.etag);
    const again = await reporting.get('/', {
      headers: [['If-None-Match', String(other.headers.etag)]],
    });
    assert.equal(again.status, 200, 'the app of this test knows no 304');
  });
});

describe('the live pages notice', () => {
  it('is written as text in every encoding of a page, whatever it contains', async (test) => {
    const notice = '"</script><b>Ä & 🙂" "color: red\\"><i>"';
    const { get } = await site(test, BLOCK(`notice ${notice}`));
    const { body } = await get('/');
    const [, element = ''] = /(<script [^]*)/.exec(body) ?? [];
    assert.equal(element, element.replace(/[^\x20-\x7e]/g, ''), 'nothing beyond ASCII');
    assert.ok(
      body.includes(
        'data-notice="&#60;/script&#62;&#60;b&#62;&#196; &#38; &#128578;" data-notice-style="color: red&#34;&#62;&#60;i&#62;"',
      ),
      body,
    );
    assert.equal(body.match(/<\/script>/g)?.length, 1);
  });
});

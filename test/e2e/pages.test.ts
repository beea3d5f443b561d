import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { poorContrast } from '../support/page-contrast.ts';
import { root, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';

describe('the pages that hubgate generates', () => {
  it('an error is a page for clients that accept HTML, otherwise text, and never reveals the cause', async (test) => {
    const origin = `http://localhost:${await freePort()}`;
    await startGateway(test, `${origin} {\n\treverse_proxy localhost:${await freePort()}\n}\n`);
    const ask = async (accept?: string) => {
      const headers = accept === undefined ? [] : ([['Accept', accept]] as const);
      const answer = await send(`${origin}/`, { headers });
      assert.equal(answer.status, 502);
      assert.equal(answer.headers['vary'], 'Accept');
      return answer;
    };
    for (const accept of [undefined, '*/*', 'application/json', 'text/html;q=0', 'x/text/html']) {
      const { headers, body } = await ask(accept);
      assert.match(headers['content-type'] ?? '', /^text\/plain/, accept);
      assert.equal(body, 'Bad Gateway\n');
    }
    for (const accept of [BROWSER, 'text/html', 'a/b, TEXT/HTML;q=0.5']) {
      const { headers, body } = await ask(accept);
      assert.match(headers['content-type'] ?? '', /^text\/html/, accept);
      assert.match(
        body,
        /<h1>This site isn’t responding\.<\/h1>\n<p>Please try again shortly\.<\/p>/,
      );
      assert.match(body, /502 Bad Gateway/);
      assert.match(body, /Quote this to support:<br>Request <code>/);
      assert.match(body, /<time datetime="[^"]+Z">[\d-]+ [\d:]+ UTC<\/time>/);
      assert.ok(body.includes(String(headers['x-request-id'])));
      assert.doesNotMatch(body, /ECONN|127\.0\.0\.1|localhost/);
      assert.match(
        String(headers['content-security-policy']),
        /default-src 'none'; style-src 'sha256-/,
      );
    }
  });

  it('a temporary error offers a retry, unless that would repeat a POST', async (test) => {
    const origin = `http://localhost:${await freePort()}`;
    await startGateway(
      test,
      `${origin} {\n\terror /502 502\n\terror /503 503\n\terror /504 504\n\terror 404\n}\n`,
    );
    for (const [method, path, isRepeatable] of [
      ['GET', '/502', true],
      ['GET', '/503', true],
      ['GET', '/504', true],
      ['GET', '/404', false],
      ['POST', '/502', false],
    ] as const) {
      const { body } = await send(`${origin}${path}`, { method, headers: [['Accept', BROWSER]] });
      assert.equal(body.includes('href="">Try again</a>'), isRepeatable, `${method} ${path}`);
    }
  });

  it('an error shows the text that `error` gives, escaped on a page, and no other text', async (test) => {
    const origin = `http://localhost:${await freePort()}`;
    await startGateway(
      test,
      `${origin} {
	error /closed "Closed <b>until</b> {path}" 503
	error /handled "the text" 410
	error /plain 403
	handle_errors 410 {
		error "of the error route" 500
	}
}
`,
    );
    const ask = async (path: string, accept: string): Promise<string> =>
      (await send(`${origin}${path}`, { headers: [['Accept', accept]] })).body;
    assert.equal(await ask('/closed', '*/*'), 'Closed <b>until</b> /closed\n');
    const page = await ask('/closed', BROWSER);
    assert.match(
      page,
      /<h1>This site is not available at the moment\.<\/h1>\n<p>Closed &#60;b&#62;until&#60;\/b&#62; \/closed<\/p>/,
    );
    assert.equal(await ask('/handled', '*/*'), 'the text\n');
    assert.equal(await ask('/plain', '*/*'), 'Forbidden\n');
    assert.equal((await send(`${origin}/closed`, { method: 'HEAD' })).body, '');
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    it(`errors, listings and the example board are readable, ${colorScheme}, at 360 px, under their policy`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const files = await temporaryDirectory(test);
      await mkdir(join(files, 'empty'));
      await writeFile(join(files, `${'long-'.repeat(40)}name.txt`), 'x');
      const boardPort = await freePort();
      const board = startProcess(test, [join(root, 'examples/live/server.mjs')], {
        PORT: String(boardPort),
      });
      await board.says('board: ');
      const [listed, broken, live] = [await freePort(), await freePort(), await freePort()].map(
        (port) => `http://localhost:${port}`,
      );
      await startGateway(
        test,
        `${listed} {\n\troot * ${files}\n\tfile_server browse\n}
${broken} {\n\treverse_proxy localhost:${await freePort()}\n}
${live} {\n\treverse_proxy localhost:${boardPort}\n}\n`,
      );
      const browser = await launchChromium(test, executable, null);
      const context = await browser.newContext({
        colorScheme,
        viewport: { width: 360, height: 740 },
      });
      const page = await context.newPage();
      await page.addInitScript(`
        window.violations = [];
        document.addEventListener('securitypolicyviolation', ({ blockedURI }) => violations.push(blockedURI));`);
      const grounds = new Set<unknown>();
      for (const url of [
        `${listed}/`,
        `${listed}/empty/`,
        `${listed}/none`,
        `${broken}/`,
        `${live}/`,
      ]) {
        await page.goto(url);
        assert.deepEqual(await poorContrast(page), [], url);
        assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 360, url);
        assert.deepEqual(await page.evaluate('window.violations'), [], url);
        if (url === `${live}/`) await page.getByRole('heading', { name: 'Board' }).waitFor();
        grounds.add(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
      }
      assert.equal(grounds.size, 1, 'one design');
    });
  }
});

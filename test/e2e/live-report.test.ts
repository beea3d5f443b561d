import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { HUB, startSite } from '../unit/discovery/site.ts';

const hubfile = (settings: string): string => `http://localhost:{port} {${HUB}
		anonymous
		cookie_name hub_token
	}
	discovery {
		changes public {
			window 0s
		}
		live {
			${settings}
		}
	}
	reverse_proxy localhost:{app}
}
`;

interface Reporting {
  readonly page: Page;
  readonly messages: readonly string[];
  /** What was reported, as the gateway's log tells it. */
  reasons(): unknown[];
  /** Changes the page at the server, and waits until it was fetched. */
  change(): Promise<void>;
}

/** A page whose list a script sorts away, under a policy that allows nothing but its own site. */
async function reporting(
  test: TestContext,
  settings: string,
  meta = '',
): Promise<Reporting | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  let version = 1;
  const site = await startSite(
    test,
    (request, response) => {
      request.resume();
      if (request.method === 'POST') {
        version += 1;
        response.writeHead(204).end();
        return;
      }
      if (request.url === '/script.js') {
        response.setHeader('Content-Type', 'text/javascript');
        response.end("document.querySelector('#list').textContent = 'of the script'");
        return;
      }
      response
        .writeHead(200, {
          'Content-Type': 'text/html',
          'Content-Security-Policy': "default-src 'self'",
        })
        .end(
          `<!doctype html><title>t</title><link rel=icon href="data:,">${meta}<body><form><input name=a><input type=hidden name=revision value=${version}></form>` +
            `<p id=list>list ${version}</p><i id=version>${version}</i><script src=/script.js></script>`,
        );
    },
    { hubfile: hubfile(settings) },
  );
  const browser = await launchChromium(test, executable, null);
  const page = await browser.newPage();
  const messages: string[] = [];
  page.on('console', (message) => {
    if (!message.text().includes('data:,')) messages.push(message.text());
  });
  const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
  await page.goto(`${site.origin}/`);
  await stream;
  return {
    page,
    messages,
    reasons: () => site.log.flatMap(({ fields }) => fields['reason'] ?? []),
    async change() {
      await fetch(site.origin, { method: 'POST' });
      await page.locator(`#version:text-is("${version}")`).waitFor();
    },
  };
}

describe('a live page with parts that are not updated', () => {
  it('reports each reason once, under a policy that allows only its own site', async (test) => {
    const its = await reporting(test, 'report');
    if (its === null) return;
    const { page } = its;
    await page.fill('[name=a]', 'typed');
    const reported = Promise.all(
      ['visitor', 'script'].map((reason) =>
        page.waitForResponse((answer) => answer.url().endsWith(`withheld=${reason}`)),
      ),
    );
    await its.change();
    for (const answer of await reported) assert.equal(answer.status(), 204);
    await its.change();
    await its.change();
    assert.equal(its.reasons().length, 2);
    assert.deepEqual(new Set(its.reasons()), new Set(['script', 'visitor']));
    assert.deepEqual(its.messages, []);
  });

  it('follows its own site, and reports to it, if its addresses are relative to another one', async (test) => {
    const its = await reporting(test, 'report', '<base href="http://127.0.0.1:1/">');
    if (its === null) return;
    await its.page.fill('[name=a]', 'typed');
    const reported = its.page.waitForRequest((request) =>
      request.url().endsWith('withheld=visitor'),
    );
    await its.change();
    assert.equal(new URL((await reported).url()).origin, new URL(its.page.url()).origin);
  });

  it('reports nothing unless reports are enabled', async (test) => {
    const its = await reporting(test, 'window 1s');
    if (its === null) return;
    const asked: string[] = [];
    its.page.on('request', (request) => asked.push(request.url()));
    await its.page.fill('[name=a]', 'typed');
    await its.change();
    await its.page.locator('#hub-stale').waitFor();
    assert.equal(
      await its.page.locator('#hub-stale').innerText(),
      'This page has changed. Load it again.',
    );
    assert.deepEqual(
      asked.filter((url) => url.includes('live-report')),
      [],
    );
  });

  it('offers to reload with the text and the style of the Hubfile', async (test) => {
    const its = await reporting(
      test,
      'notice "<b>Neu</b> für Sie" "color: rgb(1, 2, 3); } * { display: none"',
    );
    if (its === null) return;
    await its.change();
    const notice = its.page.locator('#hub-stale');
    await notice.waitFor();
    assert.equal(await notice.innerText(), '<b>Neu</b> für Sie');
    assert.equal(
      await its.page.evaluate("getComputedStyle(document.querySelector('#hub-stale')).color"),
      'rgb(1, 2, 3)',
    );
    assert.ok(await its.page.locator('#version').isVisible());
    assert.deepEqual(its.messages, []);
  });

  it('offers to reload with the text of the page, if it has one', async (test) => {
    const its = await reporting(
      test,
      'notice "of the Hubfile"',
      '<meta name=hub-stale content="of the page">',
    );
    if (its === null) return;
    await its.change();
    await its.page.getByText('of the page').waitFor();
  });
});

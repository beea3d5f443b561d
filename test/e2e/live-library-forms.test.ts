import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';
import { liveHubfile, startSite } from '../unit/discovery/site.ts';

const LIBRARIES = {
  htmx: 'htmx.org/dist/htmx.min.js',
  Turbo: '@hotwired/turbo/dist/turbo.es2017-umd.js',
  Unpoly: 'unpoly/unpoly.min.js',
} as const;
/** Lets htmx show a 422. */
const SHOWS_ERRORS = `<meta name="htmx-config" content='{"responseHandling":[{"code":"...","swap":true}]}'>`;
const TEXT = 'a long text';

/** A request of the browser to the app. */
interface Asked {
  readonly method: string;
  readonly path: string;
  readonly form: URLSearchParams;
  /** Whether somebody else has sent it. */
  readonly isOthers: boolean;
  /** Whether it is a navigation of the browser. */
  readonly isNavigation: boolean;
}

/** Responds to a request; what it returns is the body of an HTML page with the library. */
type App = (asked: Asked, response: ServerResponse) => string | void;

interface Visit {
  readonly page: Page;
  /** The requests that the app has got, as `GET /path`. */
  readonly requests: readonly string[];
  /** Somebody else sends a form. Resolves when the script has fetched the page because of it, and shown it. */
  change(path: string): Promise<void>;
}

const boosted = (body: string): string => `<body hx-boost=true>${body}</body>`;

/** Opens a live page of an app that uses a library; null if there is no browser. */
async function visit(
  test: TestContext,
  path: string,
  app: App,
  options: { hubfile?: string; head?: string; library?: keyof typeof LIBRARIES } = {},
): Promise<Visit | null> {
  const { hubfile = liveHubfile(), head = '', library = 'htmx' } = options;
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const script = readFileSync(join(root, 'node_modules', LIBRARIES[library]));
  const requests: string[] = [];
  const respond = (request: IncomingMessage, response: ServerResponse, text: string): void => {
    const asked: Asked = {
      method: request.method ?? '',
      path: request.url ?? '',
      form: new URLSearchParams(text),
      isOthers: request.headers['x-other'] !== undefined,
      isNavigation: request.headers['sec-fetch-dest'] === 'document',
    };
    requests.push(`${asked.method} ${asked.path}`);
    response.setHeader('Content-Type', 'text/html');
    const body = app(asked, response);
    if (body === undefined) return;
    const page = `<!doctype html><html><head><link rel=icon href="data:,"><script src=/library.js></script>${head}</head>`;
    response.end(body.startsWith('<form') ? body : `${page}${body}</html>`);
  };
  const site = await startSite(
    test,
    (request, response) => {
      if (request.url === '/library.js') {
        response.setHeader('Content-Type', 'text/javascript').end(script);
        return;
      }
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => respond(request, response, Buffer.concat(chunks).toString()));
    },
    { hubfile },
  );
  const browser = await launchChromium(test, executable, null);
  const page = await browser.newPage();
  const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
  await page.goto(site.origin + path);
  await stream;
  return {
    page,
    requests,
    async change(target) {
      const shown = showsFetched(page);
      await fetch(site.origin + target, {
        method: 'POST',
        redirect: 'manual',
        headers: { 'X-Other': '1' },
      });
      await shown;
    },
  };
}

/**
 * Resolves when the script has fetched the page and has had time to show it. If something else has brought the change,
 * such as a request of the library, there is no fetch.
 */
async function showsFetched(page: Page): Promise<void> {
  const isFetched = page
    .waitForResponse((one) => 'hub-live' in one.request().headers())
    .then((response) => response.finished())
    .catch(() => null);
  await Promise.race([isFetched, sleep(5_000, null, { ref: false })]);
  await sleep(200);
}

/** Writes into the form, sends it, and sees it again with its error. */
async function sendInVain(page: Page, error = 'Wrong'): Promise<void> {
  await page.fill('textarea', TEXT);
  await page.click('#send');
  await page.getByText(error).waitFor();
  // The form itself may have changed the page, which the script then fetches.
  await sleep(500);
}

const seeOther = (response: ServerResponse, location: string): void => {
  response.writeHead(303, { Location: location }).end();
};

describe('a form that htmx shows again with its error', () => {
  it('stays where the app has another page at its URL', async (test) => {
    const app: App = ({ method, path, form }) => {
      if (method === 'GET' && path === '/items')
        return boosted(
          '<main><h1>List</h1><form action=/search><input name=q><button>Search</button></form></main>',
        );
      const error = method === 'POST' ? '<b>Wrong</b>' : '';
      return boosted(
        `<main><h1>New</h1><form method=post action=/items>${error}<input name=title><textarea name=text>${form.get('text') ?? ''}</textarea><button id=send>send</button></form></main>`,
      );
    };
    const its = await visit(test, '/items/new', app);
    if (its === null) return;
    await sendInVain(its.page);
    await its.change('/items');
    assert.equal(await its.page.inputValue('textarea'), TEXT);
    assert.equal(await its.page.locator('h1').textContent(), 'New');
    assert.equal(await its.page.locator('[name=title]').count(), 1);
    assert.equal(await its.page.getByText('Search').count(), 0);
  });

  for (const how of ['boosted', 'in its part of the page']) {
    const isBoosted = how === 'boosted';
    const attributes = isBoosted ? 'method=post action=/a' : 'hx-post=/part hx-swap=outerHTML';
    const whole = (body: string): string =>
      isBoosted ? boosted(`<h1>page</h1>${body}`) : `<body><h1>page</h1>${body}</body>`;
    const responseOf = (form: string): string => (isBoosted ? whole(form) : form);

    it(`is sent with the revision that the visitor has read, ${how}`, async (test) => {
      let revision = 1;
      const results: string[] = [];
      const formOf = (text: string, sent: string, title: string, error = ''): string =>
        `<form ${attributes}>${error}<input type=hidden name=revision value=${sent}><input name=title value="${title}"><textarea name=text>${text}</textarea><button id=send>send</button></form>`;
      const app: App = ({ method, form, isOthers }, response) => {
        const titleOf = (): string => `title ${revision}`;
        if (method === 'GET') return whole(formOf('old text', `${revision}`, titleOf()));
        if (isOthers) {
          revision += 1;
          response.writeHead(204).end();
          return undefined;
        }
        const [sent, title] = [form.get('revision') ?? '', form.get('title') ?? ''];
        if (results.push(`${sent} ${title}`) === 1) {
          return responseOf(formOf(form.get('text') ?? '', sent, title, '<b>Wrong</b>'));
        }
        return responseOf('<form>done</form>');
      };
      const its = await visit(test, '/a', app);
      if (its === null) return;
      await sendInVain(its.page);
      await its.change('/a');
      assert.equal(await its.page.inputValue('textarea'), TEXT);
      await its.page.click('#send');
      await its.page.getByText('done').waitFor();
      assert.deepEqual(results, ['1 title 1', '1 title 1']);
    });

    it(`stays if the page is gone, ${how}`, async (test) => {
      let isGone = false;
      const formOf = (text = '', error = ''): string =>
        `<form ${attributes}>${error}<textarea name=text>${text}</textarea><button id=send>send</button></form>`;
      const app: App = ({ method, form, isOthers }, response) => {
        if (isOthers) {
          isGone = true;
          seeOther(response, '/');
          return undefined;
        }
        if (method === 'POST') return responseOf(formOf(form.get('text') ?? '', '<b>Wrong</b>'));
        if (isGone) response.statusCode = 404;
        return isGone ? '<h1>gone</h1>' : whole(formOf());
      };
      const its = await visit(test, '/a', app);
      if (its === null) return;
      await sendInVain(its.page);
      await its.change('/a');
      await its.page.locator('#hub-stale').waitFor();
      assert.equal(await its.page.inputValue('textarea'), TEXT);
    });
  }

  it('stays while another part of the page is loaded again and again', async (test) => {
    let count = 1;
    const bodyOf = (text = '', error = ''): string =>
      boosted(
        `<ul id=list hx-get=/a hx-select=#list hx-swap=outerHTML hx-trigger="every 300ms"><li>${count} things</li></ul><form method=post action=/a>${error}<textarea name=text>${text}</textarea><button id=send>send</button></form>`,
      );
    const app: App = ({ method, form, isOthers }, response) => {
      if (method === 'GET') return bodyOf();
      if (!isOthers) {
        response.statusCode = 422;
        return bodyOf(form.get('text') ?? '', '<b>Wrong</b>');
      }
      count += 1;
      seeOther(response, '/a');
      return undefined;
    };
    const its = await visit(test, '/a', app, { head: SHOWS_ERRORS });
    if (its === null) return;
    await sendInVain(its.page);
    await its.change('/a');
    await its.page.getByText('2 things').waitFor();
    assert.equal(await its.page.inputValue('textarea'), TEXT);
  });

  it('stays if the app has a script that is called live.js as well', async (test) => {
    const app: App = ({ method, form }) =>
      boosted(
        `<p>page</p><form method=post action=/a>${method === 'POST' ? '<b>Wrong</b>' : ''}<textarea name=text>${form.get('text') ?? ''}</textarea><button id=send>send</button></form>`,
      );
    const head = '<script src="/assets/live.js?v=3"></script>';
    const its = await visit(test, '/a', app, { head });
    if (its === null) return;
    await sendInVain(its.page);
    await its.change('/a');
    assert.equal(await its.page.inputValue('textarea'), TEXT);
    assert.equal(await its.page.getByText('Wrong').count(), 1);
  });
});

it('a page with which htmx answers a form follows its changes, whatever else is in its fields', async (test) => {
  const items = ['one'];
  let tokens = 0;
  const app: App = ({ method, path, form, isOthers }) => {
    if (method === 'POST' && path === '/items')
      items.push(isOthers ? 'other' : `${form.get('title')}`);
    tokens += 1;
    return boosted(
      `<form action=/logout method=post><input type=hidden name=token value=${tokens}><button>log out</button></form><select name=language><option>en<option>de</select><form method=post action=/items><input name=title><input name=amount value=1><button id=send>send</button></form><p>${items.join(' ')}</p>`,
    );
  };
  const its = await visit(test, '/new', app);
  if (its === null) return;
  await its.page.fill('[name=title]', 'two');
  await its.page.click('#send');
  await its.page.getByText('one two').waitFor();
  await sleep(500);
  await its.change('/items');
  await its.page.getByText('one two other', { exact: true }).waitFor();
  await its.change('/items');
  await its.page.getByText('one two other other', { exact: true }).waitFor();
  assert.equal(await its.page.locator('#hub-stale').count(), 0);
});

for (const library of ['Turbo', 'Unpoly'] as const) {
  describe(`a form that ${library} shows again with its error`, () => {
    for (const how of ['in the page', 'in a part of it']) {
      const formOf = (text: string, revision: string, error = ''): string => {
        const form = `<form method=post action=/a up-submit>${error}<input type=hidden name=revision value=${revision}><textarea name=text>${text}</textarea><button id=send>send</button></form>`;
        const part = library === 'Turbo' ? `<turbo-frame id=part>${form}</turbo-frame>` : form;
        return `<body><main><h1>revision ${revision}</h1>${how === 'in the page' ? form : part}</main></body>`;
      };

      it(`is sent with the revision that the visitor has read, ${how}`, async (test) => {
        let revision = 1;
        const sent: (string | null)[] = [];
        const app: App = ({ method, form, isOthers }, response) => {
          if (method === 'GET') return formOf('old text', `${revision}`);
          if (isOthers) revision += 1;
          else sent.push(form.get('revision'));
          if (isOthers || sent.length > 1) {
            seeOther(response, '/a');
            return undefined;
          }
          response.statusCode = 422;
          return formOf(form.get('text') ?? '', form.get('revision') ?? '', '<b>Wrong</b>');
        };
        const its = await visit(test, '/a', app, { library });
        if (its === null) return;
        await sendInVain(its.page);
        await its.change('/a');
        assert.equal(await its.page.inputValue('textarea'), TEXT);
        await its.page.click('#send');
        await its.page.getByText('old text').waitFor();
        assert.deepEqual(sent, ['1', '1']);
      });

      it(`stays if the page is gone, ${how}`, async (test) => {
        let isGone = false;
        const app: App = ({ method, form, isOthers }, response) => {
          if (isOthers) {
            isGone = true;
            seeOther(response, '/');
            return undefined;
          }
          if (method === 'POST') response.statusCode = 422;
          else if (isGone) response.statusCode = 404;
          const text = form.get('text') ?? '';
          return isGone ? '<h1>gone</h1>' : formOf(text, '1', text === '' ? '' : '<b>Wrong</b>');
        };
        const its = await visit(test, '/a', app, { library });
        if (its === null) return;
        await sendInVain(its.page);
        await its.change('/a');
        await its.page.locator('#hub-stale').waitFor();
        assert.equal(await its.page.inputValue('textarea'), TEXT);
      });
    }
  });
}

describe('a form that a script of the page sends, and shows again with its error', () => {
  for (const [how, event, isRepeated] of [
    ['when it is submitted', "addEventListener('submit'", false],
    ['when it is submitted twice', "addEventListener('submit'", true],
    ['when a button is pressed', "querySelector('#send').addEventListener('click'", false],
  ] as const) {
    it(`stays if the page is gone, ${how}`, async (test) => {
      let isGone = false;
      const formOf = (text = '', error = ''): string =>
        `<form>${error}<textarea name=text>${text}</textarea><button id=send>send</button></form>`;
      const sends = `<script>
const main = document.querySelector('main');
const listen = () => main.${event}, async (event) => {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(main.querySelector('form')));
  main.innerHTML = await (await fetch('/a', { method: 'POST', body })).text();
  listen();
}, { once: true });
listen();
</script>`;
      const app: App = ({ method, form, isOthers }, response) => {
        if (isOthers) {
          isGone = true;
          seeOther(response, '/');
          return undefined;
        }
        if (method === 'POST') {
          response.statusCode = 422;
          return formOf(form.get('text') ?? '', '<b>Wrong</b>');
        }
        if (isGone) response.statusCode = 404;
        return isGone ? '<h1>gone</h1>' : `<body><main>${formOf()}</main>${sends}</body>`;
      };
      const its = await visit(test, '/a', app);
      if (its === null) return;
      await sendInVain(its.page);
      if (isRepeated) {
        await its.page.click('#send');
        await sleep(500);
      }
      await its.change('/a');
      await its.page.locator('#hub-stale').waitFor();
      assert.equal(await its.page.inputValue('textarea'), TEXT);
    });
  }
});

describe('what the visitor has entered in a page that htmx shows again after going back', () => {
  const help = boosted('<h1>help</h1>');
  const leaveAndReturn = async (page: Page): Promise<void> => {
    const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
    await page.click('#help');
    await page.locator('h1').waitFor();
    // The script has turned to this page.
    await stream;
    const shown = showsFetched(page);
    await page.goBack();
    await shown;
  };

  it('stays in an editable element', async (test) => {
    const app: App = ({ path }) =>
      path === '/help'
        ? help
        : boosted('<a id=help href=/help>help</a><div contenteditable=true>start</div>');
    const its = await visit(test, '/a', app);
    if (its === null) return;
    await its.page.click('div');
    await its.page.keyboard.press('End');
    await its.page.keyboard.type(' and more');
    await leaveAndReturn(its.page);
    assert.equal(await its.page.locator('div').textContent(), 'start and more');
  });

  it('does not keep other fields as they were', async (test) => {
    let amount = 1;
    const app: App = ({ path, isOthers }, response) => {
      if (path === '/help') return help;
      if (!isOthers)
        return boosted(
          `<a id=help href=/help>help</a><form action=/search><input type=search name=q></form><form method=post action=/a><input name=amount value=${amount}><i>${amount} pieces</i></form>`,
        );
      amount += 1;
      response.writeHead(204).end();
      return undefined;
    };
    const its = await visit(test, '/a', app);
    if (its === null) return;
    await its.page.fill('[name=q]', 'something');
    await leaveAndReturn(its.page);
    await its.change('/a');
    await its.page.getByText('2 pieces').waitFor();
    assert.equal(await its.page.inputValue('[name=amount]'), '2');
  });

  it('stays in a form that was shown with its error', async (test) => {
    const app: App = ({ method, path, form }) =>
      path === '/help'
        ? help
        : boosted(
            `<a id=help href=/help>help</a><form method=post action=/a>${method === 'POST' ? '<b>Wrong</b>' : ''}<textarea name=text>${form.get('text') ?? ''}</textarea><button id=send>send</button></form>`,
          );
    const its = await visit(test, '/a', app);
    if (its === null) return;
    await sendInVain(its.page);
    await leaveAndReturn(its.page);
    assert.equal(await its.page.inputValue('textarea'), TEXT);
  });
});

describe('the next page to which htmx leads', () => {
  for (const field of ['HX-Redirect', 'HX-Location']) {
    it(`arrives after ${field}, although the page before is gone`, async (test) => {
      let isGone = false;
      const app: App = ({ method, path }, response) => {
        if (method === 'DELETE') {
          isGone = true;
          response.setHeader(field, '/items').end();
        } else if (path === '/items') {
          setTimeout(() => response.end('<!doctype html><h1>the list</h1>'), 600);
        } else if (isGone) response.writeHead(404).end('<!doctype html><h1>gone</h1>');
        else return '<body><button hx-delete=/items/1>delete</button></body>';
        return undefined;
      };
      const its = await visit(test, '/items/1', app);
      if (its === null) return;
      await its.page.click('button');
      await its.page.getByText('the list').waitFor();
      assert.equal(new URL(its.page.url()).pathname, '/items');
      assert.deepEqual(its.requests.slice(-2), ['DELETE /items/1', 'GET /items']);
    });
  }

  for (const [field, value] of [
    ['HX-Redirect', '/items'],
    ['HX-Refresh', 'true'],
  ] as const) {
    it(`has the message that the app keeps for it, after ${field}`, async (test) => {
      let message = '';
      const app: App = ({ method, isNavigation }, response) => {
        if (method === 'POST') {
          message = 'Saved.';
          response.setHeader(field, value).end();
          return;
        }
        const show = (): void => {
          response.end(
            `<!doctype html><head><script src=/library.js></script></head><body><p>${message}</p><button hx-post=/a>save</button>`,
          );
          message = '';
        };
        if (isNavigation && message !== '') setTimeout(show, 300);
        else show();
      };
      const its = await visit(test, '/a', app);
      if (its === null) return;
      await its.page.click('button');
      await its.page.getByText('Saved.').waitFor();
    });
  }

  it('arrives although the page before is deleted meanwhile', async (test) => {
    let isGone = false;
    const app: App = ({ method, path }, response) => {
      if (method === 'POST') {
        isGone = true;
        seeOther(response, '/');
      } else if (path === '/items')
        setTimeout(() => response.end('<!doctype html><body><h1>the list</h1></body>'), 1_000);
      else if (isGone) response.writeHead(404).end('<!doctype html><h1>gone</h1>');
      else return boosted('<a href=/items>list</a>');
      return undefined;
    };
    const its = await visit(test, '/items/1', app);
    if (its === null) return;
    await its.page.click('a');
    await its.change('/items/1');
    await its.page.getByText('the list').waitFor();
    assert.equal(await its.page.getByText('gone').count(), 0);
  });

  for (const verb of ['get', 'post']) {
    it(`stays if the URL does not change, after a ${verb}`, async (test) => {
      let version = 1;
      const app: App = ({ method, path, isOthers }, response) => {
        if (method === 'POST') {
          if (isOthers) version += 1;
          seeOther(response, '/done');
          return undefined;
        }
        if (path === '/done') return '<body><p>second step</p></body>';
        return `<body><p>first step ${version}</p><button hx-${verb}=/done hx-target=body>on</button></body>`;
      };
      const its = await visit(test, '/a', app);
      if (its === null) return;
      await its.page.click('button');
      await its.page.getByText('second step').waitFor();
      // htmx settles what it has shown after 20 ms.
      await its.page.waitForFunction("document.querySelector('.htmx-settling') === null");
      await its.change('/a');
      await its.page.locator('#hub-stale').waitFor();
      assert.equal(await its.page.getByText('second step').count(), 1);
      assert.equal(await its.page.getByText('first step').count(), 0);
    });
  }

  it('is not fetched by the script if the Hubfile excludes it', async (test) => {
    const hubfile = liveHubfile()
      .replace('\tlive\n', '\tlive @reading\n')
      .replace('\tdiscovery', '\t@reading not path /edit/*\n\tdiscovery');
    const app: App = ({ path }, response) => {
      if (path.startsWith('/edit')) return boosted('<h1>editor</h1>');
      if (response.req.method !== 'POST') return boosted('<a href=/edit/1>edit</a>');
      response.writeHead(204).end();
      return undefined;
    };
    const its = await visit(test, '/a', app, { hubfile });
    if (its === null) return;
    await its.page.click('a');
    await its.page.getByText('editor').waitFor();
    await its.change('/edit/1');
    assert.equal(its.requests.filter((one) => one === 'GET /edit/1').length, 1);
  });
});

it('a page that sends something all the time still follows its changes', async (test) => {
  let count = 1;
  const app: App = ({ method, path, isOthers }, response) => {
    if (path === '/ping') response.writeHead(204).end();
    else if (isOthers) {
      count += 1;
      seeOther(response, '/a');
    } else if (method === 'GET') {
      setTimeout(
        () =>
          response.end(
            `<!doctype html><head><script src=/library.js></script></head><body><p>${count} things</p><div hx-post=/ping hx-trigger="every 300ms" hx-swap=none></div></body>`,
          ),
        count === 1 ? 0 : 500,
      );
    }
  };
  const its = await visit(test, '/a', app);
  if (its === null) return;
  await its.change('/a');
  await its.page.getByText('2 things').waitFor();
});

it('a page that htmx has stored while a part of it faded out follows its changes', async (test) => {
  let items = ['one', 'two'];
  const app: App = ({ method, path, isOthers }, response) => {
    if (path === '/help') return boosted('<h1>help</h1>');
    if (method === 'DELETE') items = ['two'];
    else if (isOthers) items = [...items, 'three'];
    else {
      const rows = items.map(
        (item) =>
          `<li>${item}<button hx-delete=/items hx-target="closest li" hx-swap="outerHTML swap:2s">x</button></li>`,
      );
      return boosted(`<a id=help href=/help>help</a><ul>${rows.join('')}</ul>`);
    }
    response.end();
    return undefined;
  };
  const its = await visit(test, '/a', app);
  if (its === null) return;
  await its.page.locator('button').first().click();
  await its.page.locator('.htmx-swapping').waitFor();
  await its.page.click('#help');
  await its.page.locator('h1').waitFor();
  await its.page.goBack();
  await its.page.locator('li').first().waitFor();
  await its.change('/a');
  await its.page.getByText('three').waitFor();
  assert.deepEqual(await its.page.locator('li').allTextContents(), ['twox', 'threex']);
});

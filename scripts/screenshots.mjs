// Pictures of every page that hubgate or its examples show, by a headless browser, into screenshots/ (not
// committed): wide and 390 px, light and dark. To be looked at before and after a change of a page.
//
//   npm run screenshots [NAME…]     only the pages whose name contains one of the words
//   npm run screenshots -- --docs   docs/debugger.png and docs/live.png
import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromiumPath, launchChromium } from '../test/support/chromium.ts';
import { freePort } from '../test/support/free-port.ts';
import { startGateway } from '../test/support/gateway.ts';
import { root, runCommand, startProcess } from '../test/support/process.ts';
import { build } from './build.mjs';
import { palettePng } from './palette-png.mjs';

const KEY = 'the key of publishers and subscribers, long enough';
const OUT = join(root, 'screenshots');
const SIZES = { wide: { width: 1280, height: 900 }, narrow: { width: 390, height: 844 } };
const wanted = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const isForDocs = process.argv.includes('--docs');

await build();
const cleanUps = [];
const owner = {
  after: (cleanUp) => cleanUps.unshift(cleanUp),
  skip(message) {
    throw new Error(message);
  },
};
try {
  await main();
} finally {
  for (const cleanUp of cleanUps) await cleanUp();
}

async function main() {
  const files = await exampleFiles();
  const ports = await Promise.all(Array.from({ length: 7 }, freePort));
  const [hub, open, board, live, files_, boardApp, liveApp] = ports.map((port) => ({
    port,
    url: `http://localhost:${port}`,
  }));
  const silent = await freePort();
  await startGateway(
    owner,
    `${hub.url} {
	hub {
		issuer ${hub.url} {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		cookie_name hub_token
		anonymous
		subscriptions
		debugger
		transport memory
	}
	error /503 503
	error /504 504
	error /told "The shop is closed until Monday, 8:00 <b>UTC</b>." 503
	handle /502 {
		reverse_proxy localhost:${silent}
	}
}
${open.url} {
	hub {
		issuer ${open.url} {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		playground
		subscriptions
		transport memory
	}
}
${board.url} {
	hub {
		issuer ${board.url} {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		cookie_name hub_token
		anonymous
		transport memory
	}
	reverse_proxy localhost:${boardApp.port}
}
${live.url} {
	hub {
		anonymous
		transport memory
	}
	discovery {
		changes public
		live
	}
	reverse_proxy localhost:${liveApp.port}
}
${files_.url} {
	handle_path /public/* {
		root * ${files}
		file_server browse
	}
	root * ${files}
	file_server browse
}
`,
  );
  await startProcess(owner, [join(root, 'examples/app/server.mjs')], {
    PORT: String(boardApp.port),
    SITE: board.url,
    HUB_PUBLISHER_JWT_KEY: KEY,
    HUB_SUBSCRIBER_JWT_KEY: KEY,
  }).says('app: ');
  await startProcess(owner, [join(root, 'examples/live/server.mjs')], {
    PORT: String(liveApp.port),
  }).says('board: ');

  const address = `${hub.url}/.well-known/hub`;
  const granted = async (...grants) => {
    const args = ['token', '--iss', hub.url, '--aud', address, '--key', KEY, ...grants];
    const { stdout, code } = await runCommand(args);
    if (code !== 0) throw new Error('no token was made');
    return stdout.trim();
  };
  const token = await granted('--publish', '*', '--subscribe', '*');
  const refused = (await granted('--subscribe', '*')).slice(0, -60);
  const debugPage = `${address}/debug/`;
  const subscribed = (page) => page.locator('#state', { hasText: /^open$/ }).waitFor();

  /** On a narrow screen the debugger shows one part at a time. */
  const part = async (page, name) => {
    const tab = page.locator(`nav [data-tab=${name}]`);
    if (await tab.isVisible()) await tab.click();
  };

  const pages = {
    'debugger-empty': { url: debugPage },
    'debugger-bad-token': {
      url: debugPage,
      async act(page) {
        await part(page, 'token');
        await page.fill('#token', refused);
        await page.locator('#explained .bad').waitFor();
      },
    },
    'debugger-refused': {
      url: debugPage,
      async act(page) {
        await part(page, 'publish');
        await page.fill('#publish [name=topic]', 'https://example.com/books/1');
        await page.locator('#publish button.primary').click();
        await page.locator('#published.bad').waitFor();
      },
    },
    'debugger-updates': {
      url: debugPage,
      async act(page) {
        await part(page, 'token');
        await page.fill('#token', token);
        await part(page, 'stream');
        await page.locator('#subscribe button.primary').click();
        await subscribed(page);
        const publish = async (fields) => {
          const body = new URLSearchParams(fields);
          const headers = { authorization: `Bearer ${token}` };
          await fetch(address, { method: 'POST', body, headers });
        };
        await publish({
          topic: 'https://example.com/books/1',
          type: 'book',
          data: '{"title":"Emma","price":9.5,"stock":{"Bath":3,"London":0},"tags":["novel","1815"]}',
        });
        await publish({ topic: 'https://example.com/news', data: 'The library opens at nine.' });
        await part(page, 'publish');
        await page.fill('#publish [name=topic]', 'https://example.com/books/2');
        await page.fill('#publish [name=data]', '{"title": "Persuasion", "price": 8}');
        await page.locator('#publish button.primary').click();
        await part(page, 'stream');
        await page.locator('#events > li', { hasText: 'Persuasion' }).waitFor();
        await page.locator('#events > li', { hasText: 'Emma' }).locator('summary').click();
        // The rate of a whole second is drawn when the second is over.
        await page.locator('#plot rect.rate').first().waitFor({ state: 'attached' });
      },
    },
    playground: { url: `${open.url}/.well-known/hub/debug/` },
    'error-502': { url: `${hub.url}/502` },
    'error-503': { url: `${hub.url}/503` },
    'error-504': { url: `${hub.url}/504` },
    'error-404': { url: `${hub.url}/404` },
    'error-with-text': { url: `${hub.url}/told` },
    'error-of-the-hub': { url: `${address}/nothing` },
    browse: { url: `${files_.url}/` },
    'browse-folder': { url: `${files_.url}/public/books/` },
    'browse-empty': { url: `${files_.url}/books/empty/` },
    board: {
      url: board.url,
      async act(page) {
        await page.getByRole('button', { name: /alice/ }).click();
        await page.locator('#user', { hasText: 'alice' }).waitFor();
        await page.locator('#status[data-state=open]').waitFor();
        await page.fill('#say input', 'Good morning, everyone.');
        await page.locator('#say button').click();
        await page.locator('#messages li', { hasText: 'Good morning' }).first().waitFor();
        await page.selectOption('#whisper select', 'bob');
        await page.fill('#whisper input', 'Are you there?');
        await page.locator('#whisper button').click();
        await page.locator('#messages li.whisper.mine').first().waitFor();
      },
    },
    live: { url: live.url },
  };

  const browser = await launchChromium(owner, chromiumPath(owner), null);
  if (isForDocs) {
    await pictureDebugger(browser, pages['debugger-updates']);
    await pictureLivePages(browser, live.url);
    return;
  }
  await mkdir(OUT, { recursive: true });
  for (const [name, { url, act }] of Object.entries(pages)) {
    if (wanted.length > 0 && !wanted.some((word) => name.includes(word))) continue;
    for (const [size, viewport] of Object.entries(SIZES)) {
      for (const colorScheme of ['light', 'dark']) {
        const context = await browser.newContext({
          viewport,
          colorScheme,
          reducedMotion: 'reduce',
        });
        const page = await context.newPage();
        await page.goto(url);
        await act?.(page);
        await page.waitForLoadState('load');
        await page.evaluate('scrollTo(0, 0)');
        const path = join(OUT, `${name}-${size}-${colorScheme}.png`);
        await page.screenshot({ path, fullPage: true });
        console.log(path);
        await context.close();
      }
    }
  }
}

/** docs/debugger.png */
async function pictureDebugger(browser, { url, act }) {
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  await page.goto(url);
  await act(page);
  await page.evaluate('scrollTo(0, 0)');
  await writeSmall(await browser.newPage(), 'debugger.png', await page.screenshot());
}

/** Writes a picture of the documents, which a page without a policy decodes. */
async function writeSmall(page, name, png) {
  const { width, height, pixels } = await page.evaluate(
    async (source) => {
      const image = new Image();
      image.src = source;
      await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height);
      const context = canvas.getContext('2d');
      context.drawImage(image, 0, 0);
      const { data } = context.getImageData(0, 0, image.width, image.height);
      return { width: image.width, height: image.height, pixels: [...data] };
    },
    `data:image/png;base64,${png.toString('base64')}`,
  );
  await writeFile(join(root, 'docs', name), palettePng(width, height, pixels));
}

/** docs/live.png: what one visitor posts stands on the page of another, whose sentence stays. */
async function pictureLivePages(browser, url) {
  const visit = async () => {
    const context = await browser.newContext({ viewport: { width: 410, height: 560 } });
    const page = await context.newPage();
    await page.goto(url);
    return page;
  };
  const post = async (page, from, text) => {
    await page.fill('input[name=from]', from);
    await page.fill('input[name=text]', text);
    await page.click('button');
    await page.getByText(`${from} (you)`).last().waitFor();
  };
  const [alice, bob] = [await visit(), await visit()];
  await post(bob, 'Bob', 'Good morning');
  await bob.fill('input[name=text]', 'I was just about to');
  await post(alice, 'Alice', 'The page is live!');
  await bob.getByText('The page is live!').waitFor();
  const figure = async (title, page) => {
    const picture = (await page.screenshot()).toString('base64');
    return `<figure><figcaption>${title}</figcaption><img src="data:image/png;base64,${picture}"></figure>`;
  };
  const both = await browser.newPage({ viewport: { width: 860, height: 640 } });
  await both.setContent(`<style>
    body { margin: 0; padding: 12px; display: flex; align-items: flex-start; gap: 16px; background: #e9edf2; font: 600 15px system-ui, sans-serif; }
    figure { margin: 0; border-radius: 8px; overflow: hidden; background: #dfe3ec; } figcaption { padding: 8px 12px; } img { display: block; }
  </style>${await figure('Alice has just posted', alice)}${await figure('Bob, in the middle of a sentence', bob)}`);
  const clip = { x: 0, y: 0, width: 860, height: 618 };
  await writeSmall(both, 'live.png', await both.screenshot({ clip }));
}

/** A directory to be listed, with long names, sizes of all kinds and a day of its own for each file. */
async function exampleFiles() {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-screenshots-'));
  cleanUps.push(() => rm(directory, { recursive: true, force: true }));
  await mkdir(join(directory, 'books', 'empty'), { recursive: true });
  await mkdir(join(directory, 'pictures'));
  const names = ['chapter 1.txt', 'chapter 2.txt', 'chapter 10.txt', 'Emma.epub', 'a&b <c>.html'];
  names.push(`a name that is much too long for a narrow screen ${'and goes on '.repeat(8)}.pdf`);
  for (const [index, name] of names.entries()) {
    for (const folder of ['.', 'books']) {
      const file = join(directory, folder, name);
      await writeFile(file, 'x'.repeat(7 ** (index + 1)));
      const day = new Date(Date.UTC(2026, index, 11 + index, 8 + index, 5));
      await utimes(file, day, day);
    }
  }
  return directory;
}

import type { TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { liveHubfile, startSite } from '../unit/discovery/site.ts';
import { chromiumPath, launchChromium } from './chromium.ts';

export const LIVE_HUBFILE = liveHubfile();

/** A live page in a browser. */
export interface Live {
  readonly page: Page;
  /** Changes what the server sends, and waits until the page has been asked for what is new. */
  change(to?: () => void): Promise<void>;
  readonly messages: readonly string[];
}

interface LiveOptions {
  /** The body; its number goes up with each change. */
  readonly body: (version: number) => string;
  readonly head?: string;
  /** Fields of the answer. */
  readonly headers?: (version: number) => Record<string, string>;
  readonly encoding?: BufferEncoding;
}

/** Opens a live page and waits until it follows its changes; null without a browser. */
export async function openLivePage(
  test: TestContext,
  { body, head = '', headers = () => ({}), encoding = 'utf8' }: LiveOptions,
): Promise<Live | null> {
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
      } else if (request.url === '/slow.js') {
        response.setHeader('Content-Type', 'text/javascript');
        response.end('document.body.append(document.createElement("aside"))');
      } else if (request.url === '/framed') {
        response.setHeader('Content-Type', 'text/html').end('framed');
      } else {
        response
          .writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', ...headers(version) })
          .end(
            `<!doctype html><html><head><title>t</title><link rel=icon href="data:,">${head}</head><body>${body(version)}<i id=version>${version}</i></body></html>`,
            encoding,
          );
      }
    },
    { hubfile: LIVE_HUBFILE },
  );
  const browser = await launchChromium(test, executable, null);
  const page = await (await browser.newContext()).newPage();
  const messages: string[] = [];
  page.on('console', (message) => messages.push(message.text()));
  page.on('pageerror', (error) => messages.push(String(error)));
  const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
  await page.goto(`${site.origin}/`);
  await stream;
  return {
    page,
    messages,
    async change() {
      await fetch(site.origin, { method: 'POST' });
      await page.locator(`#version:text-is("${version}")`).waitFor();
    },
  };
}

/** The server removes the page at `/`: the script gets a 404 when it fetches the page. */
export async function removeFromServer(page: Page): Promise<void> {
  await page.route('**/', (route) =>
    'hub-live' in route.request().headers() ? route.fulfill({ status: 404 }) : route.continue(),
  );
  await page.evaluate("void fetch('/', { method: 'POST' })");
}

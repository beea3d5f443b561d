import { createHash, X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { type Browser, chromium } from 'playwright-core';
import { isMissed } from './program.ts';

/** The shell has the same engine without the windows of a browser, and takes a third of the time. */
const HEADLESS_SHELL = '/usr/bin/chromium-headless-shell';
const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/**
 * Path of an installed browser; without one the test is skipped aloud, and in CI fails.
 *
 * @param isWhole whether the test needs what only a whole browser has, such as the back-forward cache
 */
export function chromiumPath(test: TestContext, { isWhole = false } = {}): string | null {
  const candidates = isWhole ? BROWSERS : [HEADLESS_SHELL, ...BROWSERS];
  const found = candidates.find((path) => existsSync(path));
  if (found !== undefined) return found;
  isMissed(test, 'Chromium is not installed (apt-get install chromium chromium-headless-shell)');
  return null;
}

/**
 * Milliseconds until Playwright reports what it has waited for in vain, below the runner's limit for a file. Its own
 * 30 seconds are too few on a machine that does other things as well.
 */
const PATIENCE_MS = 300_000;

const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Browsers of this test file, by what they were started with. To start one takes longer than many tests. */
const browsers = new Map<string, Browser>();
after(async () => {
  for (const browser of browsers.values()) await browser.close();
});

/**
 * A headless browser that trusts the keys of one gateway's local authority, if any, and nothing else new. The tests of
 * a file share it; what a test opens in it is closed with the test.
 */
export async function launchChromium(
  test: TestContext,
  executablePath: string,
  storage: string | null,
  { backForwardCache = false } = {},
): Promise<Browser> {
  const started = `${backForwardCache} ${storage}`;
  const running = browsers.get(started);
  const browser = running?.isConnected()
    ? running
    : await startChromium(executablePath, storage, backForwardCache);
  browsers.set(started, browser);
  const others = new Set(browser.contexts());
  test.after(async () => {
    for (const context of browser.contexts()) if (!others.has(context)) await context.close();
  });
  return browser;
}

async function startChromium(
  executablePath: string,
  storage: string | null,
  backForwardCache: boolean,
): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath,
    ignoreDefaultArgs: backForwardCache ? ['--disable-back-forward-cache'] : [],
    args:
      storage === null
        ? ARGUMENTS
        : [
            ...ARGUMENTS,
            `--ignore-certificate-errors-spki-list=${spki(join(storage, 'pki', 'local', 'intermediate.crt'))}`,
          ],
  });
  const newContext = browser.newContext.bind(browser);
  // `newPage` of a browser calls it as well.
  browser.newContext = async (options) => {
    const context = await newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    context.setDefaultNavigationTimeout(PATIENCE_MS);
    return context;
  };
  return browser;
}

/** The pin of a certificate's key (RFC 7469 §2.4). */
function spki(file: string): string {
  const { publicKey } = new X509Certificate(readFileSync(file));
  const der = publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(der).digest('base64');
}

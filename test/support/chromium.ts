import { createHash, X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { type Browser, chromium } from 'playwright-core';
import { isMissed } from './program.ts';

const CANDIDATES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Path of an installed browser; without one the test is skipped aloud, and in CI fails. */
export function chromiumPath(test: TestContext): string | null {
  const found = CANDIDATES.find((path) => existsSync(path));
  if (found !== undefined) return found;
  isMissed(test, 'Chromium is not installed (apt-get install chromium)');
  return null;
}

/**
 * Milliseconds until Playwright reports what it has waited for in vain, below the runner's limit for a file. Its own
 * 30 seconds are too few on a machine that does other things as well.
 */
const PATIENCE_MS = 300_000;

/** A headless browser that trusts the keys of one gateway's local authority, if any, and nothing else new. */
export async function launchChromium(
  test: TestContext,
  executablePath: string,
  storage: string | null,
  { backForwardCache = false } = {},
): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath,
    ignoreDefaultArgs: backForwardCache ? ['--disable-back-forward-cache'] : [],
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      ...(storage === null
        ? []
        : [
            `--ignore-certificate-errors-spki-list=${spki(join(storage, 'pki', 'local', 'intermediate.crt'))}`,
          ]),
    ],
  });
  test.after(() => browser.close());
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

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { BrowserContextOptions, Locator, Page } from 'playwright-core';
import { chromiumPath, launchChromium } from './chromium.ts';
import { freePort } from './free-port.ts';
import { startGateway } from './gateway.ts';
import { signToken } from './hub-server.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const ISSUER = 'https://issuer.example';
export const DETAIL = 'urn:hub:authorization-detail';

export interface Debugged {
  readonly origin: string;
  readonly hub: string;
  /** Ends the gateway and starts another on the same port. */
  restart(): Promise<void>;
  open(options?: BrowserContextOptions): Promise<Page>;
  token(claims?: Record<string, unknown>): Promise<string>;
  publish(fields: Record<string, string>): Promise<string>;
}

/** A gateway with a debugger, and a browser; null without one. */
export async function debug(test: TestContext, profile = ''): Promise<Debugged | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const port = await freePort();
  const origin = `http://localhost:${port}`;
  const hub = `${origin}/.well-known/${profile === '' ? 'hub' : profile}`;
  const site = `${origin} {
	hub {
		${profile === '' ? '' : `profile ${profile}`}
		issuer ${ISSUER} {
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
}
`;
  let running = await startGateway(test, site);
  const browser = await launchChromium(test, executable, null);
  const grants = (match: string) => [
    {
      type: profile === '' ? DETAIL : 'https://mercure.rocks/authorization-detail',
      actions: ['subscribe', 'publish'],
      topics: [{ match }],
    },
  ];
  const token = (claims: Record<string, unknown> = {}): Promise<string> =>
    signToken(KEY, { iss: ISSUER, aud: hub, authorization_details: grants('*'), ...claims });
  return {
    origin,
    hub,
    token,
    async restart() {
      await running.stop();
      running = await startGateway(test, site);
    },
    async open(options = {}) {
      const context = await browser.newContext({
        viewport: { width: 1280, height: 900 },
        ...options,
      });
      const page = await context.newPage();
      await page.addInitScript(`
        window.violations = [];
        document.addEventListener('securitypolicyviolation', ({ blockedURI }) => violations.push(blockedURI));`);
      await page.goto(`${hub}/debug/`);
      await page.locator('#explained > *').first().waitFor({ state: 'attached' });
      return page;
    },
    async publish(fields) {
      const headers = { authorization: `Bearer ${await token()}` };
      const body = new URLSearchParams(fields);
      const answer = await fetch(hub, { method: 'POST', headers, body });
      assert.equal(answer.status, 200);
      return answer.text();
    },
  };
}

export const isOpen = (page: Page): Promise<void> =>
  page.locator('#state', { hasText: /^open$/ }).waitFor();

/**
 * The button that subscribes; once the stream is open, it says Restart. A test presses Enter on the buttons: 150 ms
 * after a token was typed, the page explains it, which moves a button away from a mouse that is about to click.
 */
export const start = (page: Page): Locator => page.locator('#start');

export async function subscribe(page: Page): Promise<void> {
  await start(page).press('Enter');
  await isOpen(page);
}

/** The button that publishes. */
export const publishButton = (page: Page): Locator => page.locator('#publish button.primary');

/** Unfolds a part of a form that holds the fields that are rarely needed. */
export async function unfold(page: Page, id: 'more-subscribe' | 'more-publish'): Promise<void> {
  await page.locator(`#${id} > summary`).click();
}

/** On a narrow screen shows one part of the page. */
export async function showPart(page: Page, name: 'Stream' | 'Publish' | 'Token'): Promise<void> {
  await page.locator('nav').getByRole('button', { name }).click();
}

export const event = (page: Page, hasText: string): Locator =>
  page.locator('#events > li', { hasText });

import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { HUB, type Site, startSite } from '../unit/discovery/site.ts';
import { chromiumPath, launchChromium } from './chromium.ts';
import { root } from './process.ts';
import { removeWith } from './temporary-directory.ts';

/*
 * Applications that nobody here wrote, behind a gateway: `serveApplication` starts one,
 * `startApplicationGateway` puts a gateway in front of it, and `visitApplication` opens browsers as well.
 */

/** Milliseconds after which an application that does not listen has failed. */
const START_MS = 240_000;

/** A directory that goes with the test. */
export function applicationDirectory(test: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'hubgate-app-'));
  removeWith(test, path);
  return path;
}

/** Runs a program to its end, which must be a good one. */
export function runProgram(program: string, args: readonly string[], cwd?: string): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: 'utf8' });
  assert.equal(status, 0, `${program}: ${error?.message ?? ''}${stdout}${stderr}`);
  return stdout;
}

export interface ApplicationOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** A port of 127.0.0.1, or the path of a socket. */
  readonly port: number | string;
  readonly cwd: string;
}

/** Starts a program that listens, and waits until it does. */
export async function serveApplication(
  test: TestContext,
  program: string,
  args: readonly string[],
  { env = {}, port, cwd }: ApplicationOptions,
): Promise<void> {
  const child: ChildProcess = spawn(program, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Some have workers, which end with their group alone.
    detached: true,
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => (said += text));
  }
  const exited = once(child, 'exit');
  test.after(async () => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-child.pid, 'SIGKILL');
    await exited;
  });
  const deadline = Date.now() + START_MS;
  while (!(await listens(port))) {
    if (child.exitCode !== null) throw new Error(`${program} has ended: ${said}`);
    if (Date.now() > deadline) throw new Error(`${program} does not listen: ${said}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function listens(port: number | string): Promise<boolean> {
  return new Promise((resolve) => {
    const address = typeof port === 'number' ? { port, host: '127.0.0.1' } : { path: port };
    const socket = createConnection(address);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

/** What docs/apps.md says to write for an application. */
export function recipeOf(application: string): {
  readonly discovery: string;
  readonly matchers: string;
} {
  const document = readFileSync(join(root, 'docs/apps.md'), 'utf8');
  const section = document.split(/^## /m).find((one) => one.startsWith(`${application}\n`)) ?? '';
  const [, block = ''] = /^```hubfile\n([^]*?)^```$/m.exec(section) ?? [];
  const [, discovery = ''] = /^\tdiscovery \{\n([^]*?)\n\t\}$/m.exec(block) ?? [];
  assert.ok(discovery.includes('live'), `docs/apps.md has a recipe for ${application}`);
  return {
    discovery: `\n${discovery}`,
    matchers: (block.match(/^\t@.*$/gm) ?? []).join('\n').trim(),
  };
}

export interface ApplicationGateway {
  /** Lines of `discovery`; null: no page is live. */
  readonly discovery: string | null;
  /** Lines that lead to the application. */
  readonly routes: string;
}

/** A gateway with a hub, over plain HTTP on `localhost`, which browsers take for secure. */
function startApplicationGateway(
  test: TestContext,
  { discovery, routes }: ApplicationGateway,
): Promise<Site> {
  const hubfile = `http://localhost:{port} {${HUB}
		anonymous
		cookie_name hub_token
	}
	discovery ${discovery === null ? 'off' : `{${discovery}\n\t}`}
	${routes}
}
`;
  return startSite(test, () => {}, { hubfile });
}

export interface Visitors {
  readonly origin: string;
  readonly reader: BrowserContext;
  readonly writer: BrowserContext;
  /** Opens a page and waits until it follows the hub. */
  follow(context: BrowserContext, path: string): Promise<Page>;
}

/** Two visitors in Chromium of an application behind a gateway; null where there is not a Chromium. */
export async function visitApplication(
  test: TestContext,
  gateway: ApplicationGateway,
): Promise<Visitors | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const { origin } = await startApplicationGateway(test, gateway);
  const browser = await launchChromium(test, executable, null);
  return {
    origin,
    reader: await browser.newContext(),
    writer: await browser.newContext(),
    async follow(context, path) {
      const page = await context.newPage();
      if (gateway.discovery === null) {
        await page.goto(origin + path);
        return page;
      }
      const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
      await page.goto(origin + path);
      await stream;
      return page;
    },
  };
}

/** Waits, from now on, until the page's script has shown what the server has sent again, or has withheld it. */
export async function nextMorph(page: Page): Promise<{ shown(): Promise<void> }> {
  // In the page itself: the events are its own.
  await page.evaluate(`(() => {
    window.hubMorphed = new Promise((resolve) => {
      document.addEventListener('hub:morphed', () => setTimeout(resolve, 500), { once: true });
    });
  })()`);
  return { shown: async () => void (await page.evaluate('window.hubMorphed')) };
}

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import { freePort } from './free-port.ts';
import { startGateway } from './gateway.ts';
import { root } from './process.ts';
import { isMissed } from './program.ts';

/*
 * The installed program with a configuration of docs/apps.md, over TLS, in front of an application that
 * `.ci/install-applications` has installed.
 */

/** Path of what `.ci/install-applications` installs; without it the test is skipped aloud, and in CI fails. */
export function installedApplication(test: TestContext, path: string): string | null {
  const directory = process.env['HUBGATE_APPLICATIONS'];
  const found = directory === undefined ? null : join(directory, path);
  if (found !== null && existsSync(found)) return found;
  const how = '.ci/install-applications DIRECTORY, then HUBGATE_APPLICATIONS=DIRECTORY';
  isMissed(test, `${path} is not installed (${how})`);
  return null;
}

export interface RecipeGateway {
  /** `https://localhost:PORT`. */
  readonly origin: string;
  readonly port: number;
  readonly storage: string;
  /** The file of the authority that clients have to trust. */
  readonly authority: string;
}

/** Starts the program with the section's configuration, in front of a port of 127.0.0.1. */
export async function startRecipeGateway(
  test: TestContext,
  section: string,
  appPort: number,
  { live = true } = {},
): Promise<RecipeGateway> {
  const port = await freePort();
  const text = recipeText(section)
    .replace(/^\S+ \{$/m, `localhost:${port} {\n\ttls internal`)
    .replace(/localhost:\d+$/m, `127.0.0.1:${appPort}`);
  assert.ok(text.includes(`127.0.0.1:${appPort}`), text);
  const site = live ? text : text.replace(/^\tdiscovery \{\n[^]*?^\t\}$/m, '\tdiscovery off');
  assert.ok(live || !site.includes('live'), site);
  const { storage, rootFile } = await startGateway(test, site);
  return { origin: `https://localhost:${port}`, port, storage, authority: rootFile };
}

function recipeText(section: string): string {
  const document = readFileSync(join(root, 'docs/apps.md'), 'utf8');
  const [, text] = document.split(new RegExp(`^## ${section}$`, 'm'));
  const [, block] = /^```hubfile\n([^]*?)^```$/m.exec(text ?? '') ?? [];
  assert.ok(block, `docs/apps.md has a recipe for ${section}`);
  return block;
}

/** Runs a client to its good end beside everything else; gives what it prints. */
export async function runClient(
  program: string,
  args: readonly string[],
  { cwd, env = {} }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 64 * 1024 * 1024 };
  const { stdout, stderr } = await promisify(execFile)(program, args, options);
  return stdout + stderr;
}

import { randomBytes } from 'node:crypto';
import { existsSync, rmSync } from 'node:fs';
import { basename, delimiter, dirname, join } from 'node:path';
import { Command, Option } from 'commander';
import { ConfigError, describeProblem } from '../../config/problem.ts';
import { HubgateError } from '../../kernel/error.ts';
import { envFilesOf } from '../../load-config.ts';
import { writeNew } from '../new-file.ts';
import { type Ask, onTerminal, type Output } from '../terminal.ts';
import { readText } from '../read-config.ts';
import { type Starter, starterHubfile } from '../starter-hubfile.ts';

interface InitFlags {
  readonly site?: string;
  readonly upstream?: string;
  readonly anonymous?: true;
  readonly keys?: true;
  readonly yes?: true;
  readonly output: string;
}

/** A port that needs no privileges. */
const STANDARD: Starter = { site: 'localhost:8443', upstream: 'localhost:3000', anonymous: true };
/** 256 bits: as strong as HS256. */
const KEY_BYTES = 32;

/** `hubgate init`: creates a Hubfile for an app, with its keys in a file of their own. */
export function initCommand(output: Output): Command {
  return new Command('init')
    .description('write a Hubfile for an app, and an env file with its keys')
    .option('--site <address>', 'address of the site, such as example.com')
    .option('--upstream <address>', 'where the app listens, such as localhost:3000 or 3000')
    .option('--anonymous', 'everybody may subscribe to public updates')
    .addOption(
      new Option('--keys', 'only clients with a token may subscribe').conflicts('anonymous'),
    )
    .option('--yes', 'use the default answers and ask nothing')
    .option('--output <file>', 'the Hubfile to create', 'Hubfile')
    .action(async (flags: InitFlags) => {
      const answers = await answersTo(flags);
      const keys = {
        HUB_PUBLISHER_JWT_KEY: newKey(),
        HUB_SUBSCRIBER_JWT_KEY: newKey(),
      };
      const [envFile] = envFilesOf(flags.output);
      const text = starterHubfile(
        answers,
        howToRun('hubgate', basename(flags.output), basename(envFile)),
      );
      check(text, flags.output, keys, output);
      await writeBoth([envFile, envText(keys, flags.output)], [flags.output, text]);
      output.note(
        `${flags.output} serves ${answers.site} with a hub and proxies to ${answers.upstream}.`,
      );
      output.note(
        `${envFile} has its keys, and only you can read it: keep it out of version control.`,
      );
      output.note('Next:');
      output.result(howToRun(howToStart(process.env), flags.output, envFile));
    });
}

async function answersTo(flags: InitFlags): Promise<Starter> {
  const { site, upstream } = flags;
  const anonymous = flags.anonymous ?? (flags.keys === true ? false : undefined);
  if (flags.yes === true) {
    return {
      site: site ?? STANDARD.site,
      upstream: upstream ?? STANDARD.upstream,
      anonymous: anonymous ?? STANDARD.anonymous,
    };
  }
  const missing = [
    ...(site === undefined ? ['--site'] : []),
    ...(upstream === undefined ? ['--upstream'] : []),
    ...(anonymous === undefined ? ['--anonymous or --keys'] : []),
  ];
  if (missing.length > 0 && !process.stdin.isTTY) {
    const message = `Not a terminal: pass ${missing.join(', ')}, or --yes`;
    throw new HubgateError('invalid-argument', message);
  }
  if (site !== undefined && upstream !== undefined && anonymous !== undefined) {
    return { site, upstream, anonymous };
  }
  return onTerminal(async (ask) => ({
    site: site ?? (await ask('Address of the site', STANDARD.site)),
    upstream: upstream ?? (await ask('Where the app listens', STANDARD.upstream)),
    anonymous: anonymous ?? (await mayEverybody(ask)),
  }));
}

async function mayEverybody(ask: Ask): Promise<boolean> {
  for (;;) {
    const answer = await ask('May everybody subscribe to public updates (yes, no)', 'yes');
    if (/^y(?:es)?$/i.test(answer)) return true;
    if (/^no?$/i.test(answer)) return false;
  }
}

function howToRun(program: string, hubfile: string, envFile: string): string {
  const config = hubfile === 'Hubfile' ? '' : ` --config ${hubfile}`;
  return `${program} run${config} --envfile ${envFile}`;
}

/**
 * The shell command that starts this program. An installation in a project is not in the PATH of a shell. Where `npx` would
 * not find it, it would ask for a package of that name, which somebody else may have registered.
 */
function howToStart(environment: NodeJS.ProcessEnv): string {
  const isInPath = (environment['PATH'] ?? '')
    .split(delimiter)
    // npm adds these directories for the programs that it starts.
    .filter((directory) => !directory.endsWith(join('node_modules', '.bin')))
    .some((directory) => existsSync(join(directory, 'hubgate')));
  if (isInPath) return 'hubgate';
  for (let directory = process.cwd(); ; directory = dirname(directory)) {
    if (existsSync(join(directory, 'node_modules', '.bin', 'hubgate'))) return 'npx hubgate';
    if (directory === dirname(directory)) break;
  }
  const program = process.argv[1] ?? 'hubgate';
  return /^[\w./@+-]+$/.test(program) ? program : `'${program.replaceAll("'", String.raw`'\''`)}'`;
}

function newKey(): string {
  return randomBytes(KEY_BYTES).toString('base64url');
}

/** @throws {ConfigError} for an invalid address or upstream; nothing is written then */
function check(
  text: string,
  file: string,
  keys: Readonly<Record<string, string>>,
  output: Output,
): void {
  const environment = { ...process.env, ...keys };
  try {
    const { warnings } = readText(Buffer.from(text), file, 'hubfile', environment);
    for (const warning of warnings) output.note(describeProblem(warning));
  } catch (thrown) {
    if (!(thrown instanceof ConfigError)) throw thrown;
    throw new HubgateError(
      'invalid-argument',
      `The Hubfile for these answers is not valid:\n${thrown.message}`,
    );
  }
}

function envText(keys: Readonly<Record<string, string>>, hubfile: string): string {
  const lines = Object.entries(keys).map(([name, value]) => `${name}=${value}`);
  return [
    `# Keys of ${basename(hubfile)}. The app signs its tokens with the same keys.`,
    ...lines,
    '',
  ].join('\n');
}

type File = readonly [name: string, text: string];

/** Writes both files or none. */
async function writeBoth([env, envContent]: File, [hubfile, content]: File): Promise<void> {
  await writeNew(env, envContent);
  try {
    // Without secrets, so the account of the service can read it too.
    await writeNew(hubfile, content, 0o644);
  } catch (thrown) {
    rmSync(env, { force: true });
    throw thrown;
  }
}

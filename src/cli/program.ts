// The program is bundled, because a start that looked up 500 files took twice as long. Each command
// is a chunk that is loaded when it is called.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problem.ts';
import { allowSlowConnections } from '../kernel/connection-attempts.ts';
import { codeOf, messageOf, ignore } from '../kernel/error.ts';
import { endProcess } from '../kernel/process-end.ts';
import { completionCommand } from './commands/completion.ts';
import { EXIT, type Output, printable, processOutput } from './terminal.ts';
import { packageVersion } from './commands/version.ts';
import { styleText } from 'node:util';

/** Runs the command in `args`, and sets the exit code. */
export async function runProgram(args: readonly string[]): Promise<void> {
  allowSlowConnections();
  const program = new Command('hubgate')
    .description('a gateway with a publish/subscribe hub in front of an existing web site')
    .version(packageVersion())
    // Otherwise the program reads its own options out of those of a command: the key in `token --key -Vx` would ask
    // for its version.
    .enablePositionalOptions();
  for (const command of await commandsFor(args, processOutput)) program.addCommand(command);
  program.addCommand(completionCommand(program, processOutput));
  for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
    const name = nameOf(command);
    const place = name === 'hubgate' ? name : `hubgate ${name}`;
    command.exitOverride().showHelpAfterError(`(see ${place} --help)`);
    command.configureOutput({
      outputError: (text, write) => write(withAdvice(text, command, args)),
    });
    describeFurther(command);
  }
  // A reader that has seen enough (`hubgate subscribe | head -1`) is not an error.
  process.stdout.on('error', (error) => {
    const isRead = codeOf(error) === 'EPIPE';
    if (!isRead) process.stderr.write(`hubgate: Cannot write the output: ${error.message}\n`);
    void endProcess(isRead ? EXIT.ok : EXIT.failed);
  });
  // Messages that cannot be written do not change what a command does.
  process.stderr.on('error', ignore);
  try {
    await program.parseAsync(withoutHelp(args), { from: 'user' });
  } catch (error) {
    process.exitCode = report(error);
  }
}

/** `help X Y` as `X Y --help`: commander knows neither `help token inspect` nor a mistake in `help rnu`. */
function withoutHelp(args: readonly string[]): readonly string[] {
  const [word, name = '', ...others] = args;
  if (word !== 'help' || name === '') return args;
  const isKnown = name in COMMANDS || name === 'completion';
  return isKnown ? [name, ...others, '--help'] : [name, ...others];
}

/** The message about a mistake of which commander does not say what to write instead. */
function withAdvice(text: string, command: Command, args: readonly string[]): string {
  const has = (one: Command, name: string): boolean =>
    one.options.some(({ long }) => long === name);
  if (
    text.includes('too many arguments') &&
    has(command, '--config') &&
    command.registeredArguments.length === 0
  ) {
    return `error: ${nameOf(command)} takes no argument; name the configuration file with --config\n`;
  }
  const [first = ''] = args;
  if (command.commands.every((one) => !has(one, first))) return text;
  return `${text}options follow the command, as in: hubgate run --config Hubfile\n`;
}

/** The name of a command as a user writes it, without `hubgate`. */
function nameOf(command: Command): string {
  const parent = command.parent?.name() ?? '';
  return parent === '' || parent === 'hubgate' ? command.name() : `${parent} ${command.name()}`;
}

/** Prints what went wrong, and returns the exit code. */
function report(error: unknown): number {
  // commander has already printed the help or the mistake.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const said = error instanceof ConfigError ? error.message : `hubgate: ${messageOf(error)}`;
  process.stderr.write(`${printable(said)}\n`);
  return codeOf(error) === 'invalid-argument' ? EXIT.usage : EXIT.failed;
}

/**
 * All commands of `hubgate`, in the order of the help. A command is loaded when it is called, and its action
 * loads what only the action needs. So `hubgate version` reads a handful of files.
 */
const COMMANDS = {
  init: async (output) => (await import('./commands/init.ts')).initCommand(output),
  run: async () => (await import('./commands/run.ts')).runCommand(),
  validate: async (output) => (await import('./commands/validate.ts')).validateCommand(output),
  adapt: async (output) => (await import('./commands/adapt.ts')).adaptCommand(output),
  fmt: async (output) => (await import('./commands/fmt.ts')).fmtCommand(output),
  reload: async (output) => (await import('./commands/reload.ts')).reloadCommand(output),
  stop: async (output) => (await import('./commands/stop.ts')).stopCommand(output),
  top: async (output) => (await import('./commands/top.ts')).topCommand(output),
  cache: async (output) => (await import('./commands/cache.ts')).cacheCommand(output),
  'reverse-proxy': async (output) =>
    (await import('./commands/reverse-proxy.ts')).reverseProxyCommand(output),
  token: async (output) => (await import('./commands/token.ts')).tokenCommand(output),
  'hash-password': async (output) =>
    (await import('./commands/hash-password.ts')).hashPasswordCommand(output),
  publish: async (output) => (await import('./commands/publish.ts')).publishCommand(output),
  subscribe: async (output) => (await import('./commands/subscribe.ts')).subscribeCommand(output),
  trust: async (output) => (await import('./commands/trust.ts')).trustCommand(output),
  untrust: async (output) => (await import('./commands/trust.ts')).untrustCommand(output),
  history: async (output) => (await import('./commands/history.ts')).historyCommand(output),
  outbox: async (output) => (await import('./commands/outbox.ts')).outboxCommand(output),
  'list-certificates': async (output) =>
    (await import('./commands/list-certificates.ts')).listCertificatesCommand(output),
  environ: async (output) => (await import('./commands/version.ts')).environCommand(output),
  version: async (output) => (await import('./commands/version.ts')).versionCommand(output),
} satisfies Record<string, (output: Output) => Promise<Command>>;

/**
 * The command that these arguments call. Returns all commands if that is unclear: for help, or after a
 * mistake.
 */
async function commandsFor(args: readonly string[], output: Output): Promise<Command[]> {
  const [word = ''] = args;
  const named = Object.entries(COMMANDS).filter(([name]) => name === word);
  const wanted = named.length > 0 ? named : Object.entries(COMMANDS);
  return Promise.all(wanted.map(([, load]) => load(output)));
}

/** Pages of the package with further information, by command. */
const PAGES: Readonly<Record<string, string>> = {
  init: 'docs/install.md',
  run: 'docs/production.md',
  validate: 'docs/troubleshooting.md',
  adapt: 'docs/hubfile.md',
  fmt: 'docs/hubfile.md',
  reload: 'docs/hubfile.md',
  stop: 'docs/operations.md',
  top: 'docs/operations.md',
  'reverse-proxy': 'docs/development.md',
  token: 'docs/tokens.md',
  publish: 'docs/tutorial.md',
  subscribe: 'docs/tutorial.md',
  trust: 'docs/development.md',
  untrust: 'docs/development.md',
  cache: 'docs/cache.md',
  'history init': 'docs/database.md',
  history: 'docs/production.md',
  outbox: 'docs/database.md',
  completion: 'docs/install.md',
  'hash-password': 'docs/hubfile.md',
  'list-certificates': 'docs/production.md',
  environ: 'docs/troubleshooting.md',
  version: 'docs/install.md',
};

const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  hubgate: ['hubgate run --config Hubfile', 'hubgate reverse-proxy --dev --to localhost:3000'],
  init: ['hubgate init', 'hubgate init --site example.com --upstream localhost:3000 --keys'],
  run: [
    'hubgate run',
    'hubgate run --config /etc/hubgate/Hubfile --envfile /etc/hubgate/environment',
  ],
  validate: ['hubgate validate', 'hubgate validate --config Hubfile --json'],
  adapt: [
    'hubgate adapt --to yaml',
    'hubgate adapt --adapter caddyfile --config Caddyfile --output Hubfile',
  ],
  fmt: ['hubgate fmt --write Hubfile', 'hubgate fmt --diff Hubfile'],
  reload: ['hubgate reload', 'hubgate reload --dry-run'],
  stop: ['hubgate stop', 'hubgate stop --address localhost:2030'],
  top: ['hubgate top', 'hubgate top --once --json'],
  'cache purge': [
    "hubgate cache purge 'https://example.com/blog/*'",
    'hubgate cache purge --tag spring-sale',
  ],
  'cache stats': ['hubgate cache stats'],
  'reverse-proxy': [
    'hubgate reverse-proxy --dev --to localhost:3000',
    'hubgate reverse-proxy --from :8080 --to localhost:3000 --hub --envfile hubgate.env',
  ],
  token: [
    "hubgate token --dev --subscribe '*'",
    "hubgate token --iss https://example.com --aud https://example.com/.well-known/hub --key @key --publish '*'",
  ],
  'token inspect': ['hubgate token inspect --action publish < token'],
  'hash-password': ['hubgate hash-password'],
  publish: [
    'hubgate publish --hub http://localhost:8080/.well-known/hub --token @token --topic news --data hello',
  ],
  subscribe: ["hubgate subscribe --hub http://localhost:8080/.well-known/hub --match '*'"],
  trust: ['hubgate trust', 'hubgate trust --print'],
  untrust: ['hubgate untrust'],
  'history stats': ['hubgate history stats --json'],
  'history export': ['hubgate history export backup.ndjson'],
  'history import': ['hubgate history import backup.ndjson'],
  'history compact': ['hubgate history compact'],
  'history verify': ['hubgate history verify'],
  'outbox sql': [
    'hubgate outbox sql | psql',
    'hubgate outbox sql --table books --topic /books/{id} --also /books | psql',
  ],
  'list-certificates': ['hubgate list-certificates --json'],
  environ: ['hubgate environ', 'hubgate environ --json'],
  version: ['hubgate version'],
  completion: ['source <(hubgate completion bash)'],
};

/** Adds colour, examples and the page with further information to the help of a command. */
function describeFurther(command: Command): void {
  command.configureHelp({
    styleTitle: (text) => styleText('bold', text),
    styleCommandText: (text) => styleText('cyan', text),
    styleSubcommandText: (text) => styleText('cyan', text),
    styleOptionText: (text) => styleText('green', text),
    styleArgumentText: (text) => styleText('yellow', text),
  });
  const name = nameOf(command);
  const examples = (EXAMPLES[name] ?? []).map((line) => `  ${line}`);
  const page = PAGES[name] ?? PAGES[name.split(' ')[0] ?? name] ?? 'README.md';
  command.addHelpText('after', ({ error }) => {
    // After a mistake, the message comes first, without the long help.
    if (error) return '';
    const title = examples.length > 0 ? ['', 'Examples:', ...examples] : [];
    return [...title, '', whereToRead(page)].join('\n');
  });
}

/** Where the package for Debian puts the documents. */
const INSTALLED_DOCUMENTS = '/usr/share/doc/hubgate';

function whereToRead(page: string): string {
  // The single executable sets the variable, and contains no documents.
  if (process.env['HUBGATE_UNPACKED'] === undefined) return `See ${page} of the package.`;
  const installed = join(INSTALLED_DOCUMENTS, page);
  return existsSync(installed)
    ? `See ${installed}.`
    : `See ${page} of the npm package, or of the one for Debian.`;
}

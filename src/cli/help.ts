import { styleText } from 'node:util';
import type { Command } from 'commander';

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
  history: 'docs/scaling.md',
  outbox: 'docs/database.md',
  completion: 'docs/install.md',
};
const OTHER_PAGE = 'README.md';

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
  'reverse-proxy': ['hubgate reverse-proxy --from :8080 --to localhost:3000 --hub'],
  token: [
    "hubgate token --dev --subscribe '*'",
    "hubgate token --iss https://example.com --aud https://example.com/.well-known/hub --key @key --publish '*'",
  ],
  'token inspect': ['hubgate token inspect --action publish < token'],
  'hash-password': ['hubgate hash-password'],
  publish: [
    'hubgate publish --hub http://localhost:8080/.well-known/hub --topic news --data hello',
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
export function describeFurther(command: Command): void {
  command.configureHelp({
    styleTitle: (text) => styleText('bold', text),
    styleCommandText: (text) => styleText('cyan', text),
    styleSubcommandText: (text) => styleText('cyan', text),
    styleOptionText: (text) => styleText('green', text),
    styleArgumentText: (text) => styleText('yellow', text),
  });
  const parent = command.parent?.name() ?? '';
  const isNested = parent !== '' && parent !== 'hubgate';
  const name = isNested ? `${parent} ${command.name()}` : command.name();
  const examples = (EXAMPLES[name] ?? []).map((line) => `  ${line}`);
  const page = PAGES[isNested ? parent : name] ?? OTHER_PAGE;
  command.addHelpText('after', ({ error }) => {
    // After a mistake, the message comes first, without the long help.
    if (error) return '';
    const title = examples.length > 0 ? ['', 'Examples:', ...examples] : [];
    return [...title, '', `See ${page} of the package.`].join('\n');
  });
}

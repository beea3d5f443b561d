import { Command, Option } from 'commander';
import { signingKey } from '../../auth/key.ts';
import { issueToken } from '../../auth/mint.ts';
import { SECRET_BYTES } from '../../config/check-hub.ts';
import { parseDuration } from '../../config/units.ts';
import type { JsonValue } from '../../hub/grants.ts';
import type { MatcherSpec } from '../../hub/matcher.ts';
import { profiles } from '../../hub/profile.ts';
import { HubgateError } from '../../kernel/error.ts';
import { Secret } from '../../kernel/secret.ts';
import { argumentValue } from '../new-file.ts';
import { DEV } from '../starter-hubfile.ts';
import { EXIT, type Output, printable } from '../terminal.ts';
import { readFileSync } from 'node:fs';
import type { Check } from '../../auth/inspect.ts';
import { withConfigSource } from '../config-source.ts';
import type { InspectFlags } from '../token-inspection.ts';

interface TokenFlags
  extends Partial<
    Record<'iss' | 'aud' | 'key' | 'alg' | 'kid' | 'sub' | 'clientId' | 'detailType', string>
  > {
  readonly dev?: true;
  readonly ttl?: string;
  readonly publish?: readonly string[];
  readonly publishUrlpattern?: readonly string[];
  readonly subscribe?: readonly string[];
  readonly subscribeUrlpattern?: readonly string[];
  readonly payload?: string;
  readonly profile: string;
  readonly pretty?: true;
}

/** `hubgate token`: creates an access token. Standard output contains nothing but the token. */
export function tokenCommand(output: Output): Command {
  return new Command('token')
    .addCommand(inspectCommand(output))
    .description('create an access token (RFC 9068) with grants for a hub')
    .option('--dev', 'use the values of a local development hub')
    .option('--iss <url>', 'issuer')
    .option('--aud <url>', 'audience: the URL of the hub')
    .option(
      '--key <key|@file|@->',
      'HMAC secret or PEM private key (other users can see a literal in the process list)',
    )
    .option('--alg <name>', 'algorithm; HS256 for a secret, required for a PEM key')
    .option('--kid <id>', 'key id')
    .option('--sub <subject>', 'subject; a random one by default')
    .option('--client-id <id>', 'client; the issuer by default')
    .option('--ttl <duration>', 'lifetime; 1h by default, with --dev until 2100')
    .option('--publish <topic...>', 'may publish on this topic; "*" for all')
    .option('--publish-urlpattern <pattern...>', 'may publish on topics that match')
    .option('--subscribe <topic...>', 'may read private updates on this topic; "*" for all')
    .option('--subscribe-urlpattern <pattern...>', 'may read private updates on topics that match')
    .option('--payload <json>', 'payload of the subscriptions')
    .option('--profile <name>', 'names of the protocol: hub or mercure', 'hub')
    .option('--detail-type <uri>', 'type of the authorization details')
    .option('--pretty', 'show the header and the claims on standard error')
    .action(async (flags: TokenFlags) => {
      const { token, header, claims } = await mint(flags, output);
      if (flags.pretty === true) output.note(JSON.stringify({ header, claims }, null, 2));
      output.result(token);
    });
}

async function mint(flags: TokenFlags, output: Output): ReturnType<typeof issueToken> {
  const profile =
    flags.profile === 'hub' || flags.profile === 'mercure' ? profiles[flags.profile] : null;
  if (profile === null)
    throw usage(`--profile ${flags.profile} is not a profile: use hub or mercure`);
  const grants = grantsOf(flags);
  const dev = flags.dev === true;
  const issuer = required('--iss', flags.iss ?? (dev ? DEV.issuer : undefined));
  const audience = required('--aud', flags.aud ?? (dev ? DEV.issuer + profile.path : undefined));
  const standard = dev ? process.env[DEV.keyVariable] || DEV.demoSecret : undefined;
  const key = required('--key', flags.key === undefined ? standard : argumentValue(flags.key));
  const secret = new Secret(key);
  const signing = signingKey(secret, flags.alg ?? null);
  const needed = SECRET_BYTES[signing.algorithm] ?? 0;
  const bytes = secret.bytes().length;
  if (bytes < needed)
    output.note(
      `Warning: this key has ${bytes} bytes, ${signing.algorithm} needs at least ${needed}`,
    );
  const now = Date.now();
  return issueToken({
    key: signing,
    keyId: flags.kid,
    issuer,
    audience,
    subject: flags.sub,
    clientId: flags.clientId,
    issuedAtMs: now,
    expiresAtMs:
      dev && flags.ttl === undefined ? DEV.expiresAtMs : now + lifetimeOf(flags.ttl ?? '1h'),
    detailType: flags.detailType ?? profile.detailType,
    ...grants,
    payload: payloadOf(flags.payload),
  });
}

function grantsOf(flags: TokenFlags): { publish: MatcherSpec[]; subscribe: MatcherSpec[] } {
  const publish = specs(flags.publish, flags.publishUrlpattern);
  const subscribe = specs(flags.subscribe, flags.subscribeUrlpattern);
  if (publish.length > 0 || subscribe.length > 0) return { publish, subscribe };
  if (flags.dev === true) return { publish: specs(['*']), subscribe: specs(['*']) };
  throw failed(
    'A token needs a grant: pass --publish, --publish-urlpattern, --subscribe or --subscribe-urlpattern',
  );
}

function specs(exact: readonly string[] = [], patterns: readonly string[] = []): MatcherSpec[] {
  return [
    ...exact.map((match) => ({ match, matchType: 'exact' as const })),
    ...patterns.map((match) => ({ match, matchType: 'urlpattern' as const })),
  ];
}

function lifetimeOf(text: string): number {
  const past = text.startsWith('-');
  const ms = parseDuration(past ? text.slice(1) : text);
  if (ms === null) throw usage(`--ttl ${text} is not a duration such as 15m, 1h30m or 7d`);
  return past ? -ms : ms;
}

function payloadOf(text: string | undefined): JsonValue | undefined {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw failed(`--payload is not JSON: ${text}`);
  }
}

function required(flag: string, value: string | undefined): string {
  if (value === undefined)
    throw failed(`${flag} is missing (or --dev, for a local development hub)`);
  return value;
}

function usage(message: string): HubgateError {
  return new HubgateError('invalid-argument', message);
}

function failed(message: string): HubgateError {
  return new HubgateError('cannot-mint', message);
}

/**
 * `hubgate token inspect`: shows which check of the hub a token fails, how to fix it, and what the token
 * grants.
 */
export function inspectCommand(output: Output): Command {
  return withConfigSource(new Command('inspect'))
    .description('explain whether a hub of a configuration accepts a token')
    .argument('[token]', 'the token; without it, or with "-", standard input', '-')
    .option('--url <url>', 'URL at which clients reach the hub')
    .addOption(
      new Option(
        '--action <action>',
        'the action that the token is for (default: subscribe, or publish if it grants only that)',
      ).choices(['publish', 'subscribe']),
    )
    .option('--topic <topic>', 'also check that the grants cover this topic')
    .option('--json', 'print it as JSON')
    .action(async (token: string, _flags: unknown, command: Command) => {
      // For options that `token` has too, commander passes the values of the parent. These are the
      // subcommand's own.
      const flags = command.opts<InspectFlags>();
      const text = token === '-' ? readFileSync(0, 'utf8').trim() : token;
      const { inspect } = await import('../token-inspection.ts');
      const { checks, granted, action } = await inspect(text, flags);
      const failed = checks.filter(({ passed }) => !passed);
      if (failed.length > 0) process.exitCode = EXIT.failed;
      if (command.opts<{ readonly json?: true }>().json === true) {
        return output.result(
          printable(JSON.stringify({ accepted: failed.length === 0, action, checks, granted })),
        );
      }
      for (const check of checks) output.result(printable(describe(check)));
      for (const line of granted) output.result(printable(line));
      const use = action === 'publish' ? 'publishing' : 'subscribing';
      output.result(
        failed.length === 0
          ? `The hub accepts this token for ${use}.`
          : `The hub refuses this token for ${use}: ${failed.map(({ check }) => check).join(', ')}.`,
      );
    });
}

function describe({ check, passed, expected, found, fix }: Check): string {
  if (passed) return `ok    ${check}: ${found}`;
  return `FAIL  ${check}: expected ${expected}; found ${found}\n      ${fix}`;
}

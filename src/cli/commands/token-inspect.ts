import { readFileSync } from 'node:fs';
import { Command, Option } from 'commander';
import { type Check, inspectToken } from '../../auth/inspect.ts';
import type { Config, HubConfig, SiteAddress } from '../../config/config.ts';
import { profiles } from '../../hub/profile.ts';
import { systemClock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import { silentLogger } from '../../kernel/log.ts';
import { Scope } from '../../kernel/scope.ts';
import { Slices } from '../../kernel/slices.ts';
import { createKeySets, openVerification } from '../../runtime/hub-setup.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import { EXIT, type Output } from '../output.ts';
import { readConfig } from '../read-config.ts';

interface InspectFlags extends ConfigSource {
  readonly url?: string;
  readonly action: 'publish' | 'subscribe';
  readonly topic?: string;
}

interface ConfiguredHub {
  readonly config: HubConfig;
  /** The URLs by which its site can be contacted. */
  readonly urls: readonly string[];
}

/** `hubgate token inspect`: which check of the hub a token fails, and how to mend it. */
export function inspectCommand(output: Output): Command {
  return withConfigSource(new Command('inspect'))
    .description('explain what a hub of a configuration would make of a token')
    .argument('[token]', 'the token; "-" or nothing reads standard input', '-')
    .option('--url <url>', 'URL by which the hub is contacted')
    .addOption(
      new Option('--action <action>', 'what the token is for')
        .choices(['publish', 'subscribe'])
        .default('subscribe'),
    )
    .option('--topic <topic>', 'also check that the grants cover this topic')
    .action(async (token: string, _flags: unknown, command: Command) => {
      // Of the options that `token` has too, commander gives the parent's; these are ours.
      const flags = command.opts<InspectFlags>();
      const text = token === '-' ? readFileSync(0, 'utf8').trim() : token;
      const checks = await inspect(text, flags);
      for (const check of checks) output.result(describe(check));
      const failed = checks.filter(({ passed }) => !passed);
      output.result(
        failed.length === 0
          ? 'The hub accepts this token.'
          : `The hub refuses this token: ${failed.map(({ check }) => check).join(', ')}.`,
      );
      if (failed.length > 0) process.exitCode = EXIT.failed;
    });
}

async function inspect(token: string, flags: InspectFlags): Promise<readonly Check[]> {
  const { config } = readConfig(flags, process.env);
  const hub = chooseHub(configuredHubs(config), flags.url);
  const scope = new Scope();
  try {
    const around = {
      keySets: createKeySets(),
      clock: systemClock,
      slices: new Slices(),
      log: silentLogger,
    };
    const verification = await openVerification(hub.config, around, scope);
    return await inspectToken(token, verification, {
      action: flags.action,
      audience: hub.config.resourceIdentifier ?? flags.url ?? hub.urls[0] ?? '',
      topic: flags.topic ?? null,
    });
  } finally {
    await scope.close();
  }
}

function configuredHubs({ sites, options }: Config): ConfiguredHub[] {
  return sites.flatMap(({ hub, addresses }) => {
    if (hub === null) return [];
    const path = hub.path ?? profiles[hub.profile].path;
    const urls = addresses.map((address) => originOf(address, options) + path);
    return [{ config: hub, urls }];
  });
}

function originOf(
  { scheme, host, port }: SiteAddress,
  { httpPort, httpsPort }: Config['options'],
): string {
  const actual = port ?? (scheme === 'https' ? httpsPort : httpPort);
  const isDefault = actual === (scheme === 'https' ? 443 : 80);
  return `${scheme}://${host || 'localhost'}${isDefault ? '' : `:${actual}`}`;
}

function chooseHub(hubs: readonly ConfiguredHub[], url: string | undefined): ConfiguredHub {
  const named = hubs.find(({ urls }) => url !== undefined && urls.includes(url));
  const chosen = named ?? (hubs.length === 1 ? hubs[0] : undefined);
  if (chosen !== undefined) return chosen;
  const known = hubs.flatMap(({ urls }) => urls).join(', ');
  throw new HubgateError(
    'invalid-argument',
    hubs.length === 0 ? 'This configuration has no hub' : `Say which hub with --url: ${known}`,
  );
}

function describe({ check, passed, expected, found, cure }: Check): string {
  if (passed) return `ok    ${check}: ${found}`;
  return `FAIL  ${check}: expected ${expected}; found ${found}\n      ${cure}`;
}

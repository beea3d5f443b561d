import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { environmentOf } from '../config-source.ts';
import { DEV, originOf } from '../starter-hubfile.ts';
import type { Output } from '../terminal.ts';
import { type ReadyConfig, readText, storageOf } from '../read-config.ts';

interface ReverseProxyFlags {
  readonly from: string;
  readonly to: readonly string[];
  readonly hub?: true;
  readonly dev?: true;
  readonly envfile?: string;
}

/** `hubgate reverse-proxy`: runs a gateway without a configuration file. */
export function reverseProxyCommand(output: Output): Command {
  return new Command('reverse-proxy')
    .description('run a gateway in front of an app, without a configuration file')
    .option('--from <address>', 'address of the site', DEV.site)
    .requiredOption('--to <upstream...>', 'where the app listens, such as localhost:3000')
    .option(
      '--hub',
      `with a hub; its keys are in ${DEV.keyVariable} and ${DEV.subscriberKeyVariable}`,
    )
    .option('--envfile <file>', 'read environment variables (NAME=value) from a file')
    .option(
      '--dev',
      'for development, on loopback only: a local certificate, and a hub without keys',
    )
    .action(async (flags: ReverseProxyFlags) => {
      const text = Buffer.from(hubfileOf(flags));
      // Without --dev, an unset key stays unset and is reported as a problem.
      const given = environmentOf(flags);
      const environment = flags.dev === true ? { ...demoKeys(), ...given } : given;
      if (flags.dev === true) {
        const isPublic = environment[DEV.keyVariable] === DEV.demoSecret;
        for (const line of devLines(flags.from, isPublic)) output.note(line);
      } else if (flags.hub === true) output.note(hubLine(originOf(flags.from)));
      const { runGateway } = await import('../run-gateway.ts');
      await runGateway({
        read: () => {
          const ready = readText(text, '(command line)', 'hubfile', environment);
          return flags.dev === true ? withoutDemoWarnings(ready) : ready;
        },
        source: null,
        envPath: null,
        environment: () => environment,
        watch: false,
      });
    });
}

/** Hints for a developer: the site's address, the authority to trust, and how to get a token. */
function devLines(from: string, isPublic: boolean): string[] {
  const url = urlOf(from);
  // Beside a Hubfile, the command trusts the authority of its storage.
  const trust = existsSync('Hubfile')
    ? 'hubgate trust, in a directory without a Hubfile'
    : 'hubgate trust';
  return [
    `Development gateway: ${url}, reachable from this machine only`,
    ...(url.startsWith('https:')
      ? [`Its authority: ${join(storageOf(null), 'pki', 'local', 'root.crt')} (${trust})`]
      : []),
    `Its hub: ${url.replace(/\/$/, '')}${DEV.hubPath}; a token: hubgate token --dev`,
    isPublic
      ? 'Its key is public, so anybody on this machine can publish. Use it for development only.'
      : `Its key is ${DEV.keyVariable} of the environment, where hubgate token --dev needs it as well.`,
  ];
}

/** What the tokens of the hub need, which a Hubfile would show. */
function hubLine(origin: string): string {
  return `Its hub: ${origin}${DEV.hubPath}; its tokens: iss ${origin}, aud ${origin}${DEV.hubPath}`;
}

/** The user has written no key. */
function withoutDemoWarnings(ready: ReadyConfig): ReadyConfig {
  return { ...ready, warnings: ready.warnings.filter(({ code }) => code !== 'demo-key') };
}

/** A port alone means plain HTTP, as in a Hubfile, unless it is 443. */
function urlOf(from: string): string {
  if (from.includes('://')) return from;
  const scheme = /^:(?!443$)|:80$/.test(from) ? 'http' : 'https';
  return `${scheme}://${from.startsWith(':') ? 'localhost' : ''}${from}`;
}

/** The demo key is public, and anyone who knows it may publish. So only this machine can connect. */
function loopback(): string {
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return addresses.some(({ address }) => address === '::1') ? '127.0.0.1 [::1]' : '127.0.0.1';
}

function demoKeys(): Record<string, string> {
  return { [DEV.keyVariable]: DEV.demoSecret, [DEV.subscriberKeyVariable]: DEV.demoSecret };
}

/** The Hubfile that is equivalent to the flags. */
function hubfileOf({ from, to, hub, dev }: ReverseProxyFlags): string {
  for (const word of [from, ...to]) {
    if (!/^[^\s{}"`#<\\]+$/.test(word)) {
      throw new HubgateError('invalid-argument', `${JSON.stringify(word)} is not an address`);
    }
  }
  const hasPort = /:\d+$/.test(from);
  return [
    '{',
    '\tadmin off',
    // A user that names a port may lack the privilege to open port 80.
    ...(hasPort ? ['\tauto_https disable_redirects'] : []),
    ...(dev === true ? ['\tlocal_certs'] : []),
    '}',
    `${from} {`,
    ...(dev === true ? [`\tbind ${loopback()}`] : []),
    ...(hub === true || dev === true ? hubLines(from, dev === true) : []),
    `\treverse_proxy ${to.join(' ')}`,
    '}',
    '',
  ].join('\n');
}

function hubLines(from: string, dev: boolean): string[] {
  const issuer = dev ? DEV.issuer : originOf(from);
  return [
    '\thub {',
    `\t\tissuer ${issuer} {`,
    '\t\t\tpublisher {',
    `\t\t\t\tjwt {env.${DEV.keyVariable}}`,
    '\t\t\t}',
    '\t\t\tsubscriber {',
    `\t\t\t\tjwt {env.${DEV.subscriberKeyVariable}}`,
    '\t\t\t}',
    '\t\t}',
    // Browsers refuse cookies named __Secure-… over plain HTTP.
    ...(urlOf(from).startsWith('http:') ? ['\t\tcookie_name hub_access_token'] : []),
    ...(dev
      ? [
          '\t\tanonymous',
          '\t\tsubscriptions',
          `\t\tresource_identifier ${DEV.issuer}${DEV.hubPath}`,
        ]
      : []),
    '\t}',
  ];
}

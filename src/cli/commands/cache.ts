import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import type { StatusReport } from '../../runtime/health.ts';
import {
  getFromAdmin,
  isDone,
  postToAdmin,
  refusalText,
  gatewayAddress,
} from '../admin-request.ts';
import { atGateway, type GatewayFlags } from '../config-source.ts';
import type { Output } from '../terminal.ts';

interface PurgeFlags extends GatewayFlags {
  readonly tag?: string;
  readonly all?: true;
}

interface StatsFlags extends GatewayFlags {
  readonly json?: true;
}

/** `hubgate cache`: the stored responses of a running gateway. */
export function cacheCommand(output: Output): Command {
  return new Command('cache')
    .description('show and purge the response cache of a running gateway')
    .addCommand(purgeCommand(output))
    .addCommand(statsCommand(output));
}

function purgeCommand(output: Output): Command {
  return atGateway('purge')
    .description('drop responses: of a URL, of all URLs that match a pattern with *, or with a tag')
    .argument('[url]', 'URL, or a pattern such as https://example.com/blog/*')
    .option('--tag <tag>', 'drop what has this tag')
    .option('--all', 'drop everything')
    .action(async (url: string | undefined, flags: PurgeFlags, command: Command) => {
      const { tag, all } = flags;
      const given = [url, tag, all].filter((one) => one !== undefined);
      if (given.length !== 1) {
        throw new HubgateError('invalid-argument', 'Name a URL, a pattern, --tag or --all');
      }
      const kind = url?.includes('*') === true ? 'pattern' : 'url';
      const query = new URLSearchParams(
        all === true ? { all: '' } : tag === undefined ? { [kind]: url ?? '' } : { tag },
      );
      const address = gatewayAddress(flags, command);
      const answer = await postToAdmin(address, `/cache/purge?${query.toString()}`);
      if (!isDone(answer)) throw new HubgateError('purge-failed', refusalText(address, answer));
      const { purged } = Object(answer.body);
      output.result(`purged ${purged}`);
    });
}

function statsCommand(output: Output): Command {
  return atGateway('stats')
    .description('show what is stored, and how requests were answered')
    .option('--json', 'print JSON')
    .action(async (flags: StatsFlags, command: Command) => {
      const address = gatewayAddress(flags, command);
      const answer = await getFromAdmin(address, '/status');
      if (!isDone(answer)) throw new HubgateError('status-failed', refusalText(address, answer));
      // The response is from the admin API of this version.
      const stats = statsOf(answer.body as StatusReport);
      if (flags.json === true) output.result(JSON.stringify(stats));
      else for (const [name, value] of Object.entries(stats)) output.result(`${name} ${value}`);
    });
}

/** The metrics of caches, by short names. */
function statsOf({ metrics }: StatusReport): Record<string, number> {
  const stats: Record<string, number> = {};
  for (const { name, values } of metrics) {
    const [, what] = /^hubgate_cache_(\w+?)(?:_total)?$/.exec(name) ?? [];
    if (what === undefined) continue;
    for (const { labels, value } of values) {
      const key = [what, ...Object.values(labels)].join(' ');
      stats[key] = (stats[key] ?? 0) + value;
    }
  }
  return stats;
}

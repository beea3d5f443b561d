import { resolve } from 'node:path';
import type { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import type { PreviewData } from '../../runtime/admin.ts';
import { adminAddressOf, isDone, postToAdmin, refusalText } from '../admin-request.ts';
import { environmentOf, atGateway, type GatewayFlags, readInput } from '../config-source.ts';
import { EXIT, type Output } from '../terminal.ts';
import { adapterOf, readOptions } from '../read-config.ts';

interface ReloadFlags extends GatewayFlags {
  readonly dryRun?: true;
  readonly json?: true;
}

const MEDIA_TYPES = {
  hubfile: 'text/hubfile',
  yaml: 'application/yaml',
  json: 'application/json',
} as const;

/**
 * `hubgate reload`: sends a configuration to a running gateway. The gateway checks it, in its own environment
 * and with its own files, before it changes anything.
 */
export function reloadCommand(output: Output): Command {
  return atGateway('reload')
    .description('load a configuration into the running gateway, if it is valid')
    .option('--dry-run', 'print what would change, and change nothing')
    .option('--json', 'print the changes as JSON')
    .action(async (flags: ReloadFlags) => {
      const text = readInput(flags.config);
      const address = adminAddressOf(flags.address, readOptions(text, flags, environmentOf(flags)));
      const query =
        flags.config === '-' ? '' : `?file=${encodeURIComponent(resolve(flags.config))}`;
      const type = MEDIA_TYPES[adapterOf(flags)];
      const path = flags.dryRun === true ? '/load/dry-run' : '/load';
      const answer = await postToAdmin(address, `${path}${query}`, text, type);
      if (isDone(answer)) {
        if (flags.dryRun !== true)
          output.note(`The gateway on ${address} has loaded ${flags.config}`);
        printChanges(answer.body, flags, output);
        return;
      }
      if (!Array.isArray(answer.body))
        throw new HubgateError('reload-failed', refusalText(address, answer));
      if (flags.json === true) output.result(JSON.stringify(answer.body));
      else for (const problem of answer.body) output.note(describe(problem));
      process.exitCode = EXIT.failed;
    });
}

/** Prints what a load has done, or would do. */
function printChanges(body: unknown, flags: ReloadFlags, output: Output): void {
  if (typeof body !== 'object' || body === null || !('sites' in body)) return;
  if (flags.json === true) return output.result(JSON.stringify(body));
  for (const warning of warningsIn(body)) output.note(describe(warning));
  const lines = previewLines(body);
  for (const line of lines) output.result(line);
  if (lines.length > 0) return;
  const nothing = 'no site, listener, stream or certificate';
  if (flags.dryRun === true) output.result(`${flags.config} would change ${nothing}`);
  else
    output.result(`It changed ${nothing}; a gateway that watches the file has already loaded it`);
}

function warningsIn(body: unknown): readonly unknown[] {
  const isAnswer = typeof body === 'object' && body !== null && 'warnings' in body;
  return isAnswer && Array.isArray(body.warnings) ? body.warnings : [];
}

/** A problem in the format of the admin API, with its excerpt. */
function describe(data: unknown): string {
  if (typeof data !== 'object' || data === null) return String(data);
  if ('text' in data) return String(data.text);
  return 'message' in data ? String(data.message) : JSON.stringify(data);
}

/** The effects of a load, one line each; empty if there are none. */
export function previewLines(body: unknown): readonly string[] {
  // The response is from a gateway of this version; others do not have this path.
  const { sites, listeners, streams, histories_left_behind, caches_emptied, certificates } =
    body as PreviewData;
  const rows: (readonly [string, string])[] = [
    ...sites.added.map((site) => ['site added', site] as const),
    ...sites.removed.map((site) => ['site removed', site] as const),
    ...sites.changed.map((site) => ['site changed', site] as const),
    ...listeners.opened.map((one) => ['listener opened', one] as const),
    ...listeners.closed.map((one) => ['listener closed', one] as const),
    ...listeners.changed.map((one) => ['listener becomes', one] as const),
    ...listeners.handed_over.map(
      ({ from, to }) => ['listener handed over', `${from} to ${to}`] as const,
    ),
    ...streams.map(({ hub, count, why }) => ['streams end', `${count} of ${hub}: ${why}`] as const),
    ...histories_left_behind.map((name) => ['history left behind', name] as const),
    ...caches_emptied.map((site) => ['cache emptied', site] as const),
    ...certificates.map(
      ({ name, authorities }) =>
        ['certificate ordered', `${name} of ${authorities.join(', else ')}`] as const,
    ),
  ];
  const width = Math.max(0, ...rows.map(([what]) => what.length));
  return rows.map(([what, which]) => `${what.padEnd(width)}  ${which}`);
}

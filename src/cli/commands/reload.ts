import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { adminAddressOf, postToAdmin } from '../admin-request.ts';
import { type ConfigSource, environmentOf, withConfigSource } from '../config-source.ts';
import { previewLines } from '../load-preview-text.ts';
import { EXIT, type Output } from '../output.ts';
import { adapterOf, readOptions } from '../read-config.ts';

interface ReloadFlags extends ConfigSource {
  readonly address?: string;
  readonly dryRun?: true;
  readonly json?: true;
}

const MEDIA_TYPES = {
  hubfile: 'text/hubfile',
  yaml: 'application/yaml',
  json: 'application/json',
} as const;

/**
 * `hubgate reload`: gives a running gateway a configuration. The gateway checks it, in its own
 * environment and with its own files, before it changes anything.
 */
export function reloadCommand(output: Output): Command {
  return withConfigSource(new Command('reload'))
    .description('load a configuration into the running gateway, if it is valid')
    .option('--address <host:port>', 'admin address of the gateway, if not the one of the file')
    .option('--dry-run', 'print what it would do, and change nothing')
    .option('--json', 'with --dry-run: print it as JSON')
    .action(async (flags: ReloadFlags) => {
      const text = read(flags.config);
      const address = adminAddressOf(flags.address, readOptions(text, flags, environmentOf(flags)));
      const query =
        flags.config === '-' ? '' : `?file=${encodeURIComponent(resolve(flags.config))}`;
      const type = MEDIA_TYPES[adapterOf(flags)];
      const path = flags.dryRun === true ? '/load/dry-run' : '/load';
      const answer = await postToAdmin(address, `${path}${query}`, text, type);
      if (answer.status === 200 && flags.dryRun === true) {
        printPreview(answer.body, flags, output);
        return;
      }
      if (answer.status === 200) {
        output.note(`The gateway on ${address} has loaded ${flags.config}`);
        return;
      }
      if (!Array.isArray(answer.body)) {
        const message = `The gateway on ${address} answered ${answer.status}`;
        throw new HubgateError('reload-failed', message);
      }
      if (flags.json === true) output.result(JSON.stringify(answer.body));
      else for (const problem of answer.body) output.note(describe(problem));
      process.exitCode = EXIT.failed;
    });
}

function printPreview(body: unknown, { config, json }: ReloadFlags, output: Output): void {
  if (json === true) {
    output.result(JSON.stringify(body));
    return;
  }
  for (const warning of warningsIn(body)) output.note(describe(warning));
  const lines = previewLines(body);
  for (const line of lines) output.result(line);
  if (lines.length === 0)
    output.result(`${config} would change no site, listener, stream or certificate`);
}

function warningsIn(body: unknown): readonly unknown[] {
  const isAnswer = typeof body === 'object' && body !== null && 'warnings' in body;
  return isAnswer && Array.isArray(body.warnings) ? body.warnings : [];
}

function read(file: string): Uint8Array {
  try {
    return readFileSync(file === '-' ? 0 : file);
  } catch (cause) {
    throw new HubgateError('unreadable-file', `Cannot read ${file}: ${messageOf(cause)}`, {
      cause,
    });
  }
}

/** A problem as the admin API sends it, with its excerpt. */
function describe(data: unknown): string {
  if (typeof data !== 'object' || data === null) return String(data);
  if ('text' in data) return String(data.text);
  return 'message' in data ? String(data.message) : JSON.stringify(data);
}

import { once } from 'node:events';
import { type Command, InvalidArgumentError } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import type { StatusReport } from '../../runtime/health.ts';
import { getFromAdmin, refusalText, gatewayAddress } from '../admin-request.ts';
import { atGateway, type GatewayFlags } from '../config-source.ts';
import { type Output, printable } from '../terminal.ts';

interface TopFlags extends GatewayFlags {
  readonly interval: number;
  readonly once?: true;
  readonly json?: true;
}

/** Seconds. */
const MIN_INTERVAL = 0.1;
const MAX_INTERVAL = 3600;

const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_REST = '\u001b[J';

/** `hubgate top`: shows the activity of a running gateway. */
export function topCommand(output: Output): Command {
  return atGateway('top')
    .description('show what a running gateway does: rates, hubs, upstreams, slow subscribers')
    .option('--interval <seconds>', 'time between two reports', seconds, 2)
    .option('--once', 'look twice, print one report and exit')
    .option('--json', 'print one line of JSON per report')
    .action(async (flags: TopFlags, command: Command) => {
      const address = gatewayAddress(flags, command);
      const terminal = process.stdout.isTTY && flags.once !== true && flags.json !== true;
      if (!terminal) await watch(address, flags, (lines) => output.result(lines.join('\n')));
      else await onScreen((show) => watch(address, flags, show));
    });
}

function seconds(text: string): number {
  const value = Number(text);
  if (value >= MIN_INTERVAL && value <= MAX_INTERVAL) return value;
  throw new InvalidArgumentError(`Pass a number from ${MIN_INTERVAL} to ${MAX_INTERVAL}.`);
}

async function watch(
  address: string,
  { interval, once: isOnce, json }: TopFlags,
  show: (lines: readonly string[]) => void,
): Promise<void> {
  const { overviewOf, Reading } = await import('../top/overview.ts');
  const { screenOf } = await import('../top/screen.ts');
  const { isTTY } = process.stdout;
  const coloured = isTTY && (process.env['NO_COLOR'] ?? '') === '';
  let before = await report(address);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, interval * 1000));
    const now = await report(address);
    const overview = overviewOf(new Reading(before, now));
    // A terminal that does not report its size has 0 columns. It may also have been resized.
    const columns = isTTY ? process.stdout.columns || null : null;
    show(
      json === true
        ? [printable(JSON.stringify(overview))]
        : screenOf(overview, address, { columns, coloured }),
    );
    if (isOnce === true) return;
    before = now;
  }
}

/**
 * Draws each overview over the previous one, on a separate screen. The original screen returns at the end.
 */
async function onScreen(
  run: (show: (lines: readonly string[]) => void) => Promise<void>,
): Promise<void> {
  const { stdout } = process;
  const leave = (): void => void stdout.write(LEAVE);
  stdout.write(ENTER);
  // However it ends: ctrl-C, a signal, an error.
  process.once('exit', leave);
  const stopped = Promise.race(
    (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((name) => once(process, name)),
  );
  try {
    await Promise.race([
      stopped,
      run((lines) => {
        // A terminal that does not report its size has 0 rows.
        const shown = lines.slice(0, stdout.rows || undefined).map((line) => line + CLEAR_LINE);
        stdout.write(HOME + shown.join('\r\n') + CLEAR_REST);
      }),
    ]);
  } finally {
    process.removeListener('exit', leave);
    leave();
  }
  process.exit();
}

async function report(address: string): Promise<StatusReport> {
  const answer = await getFromAdmin(address, '/status');
  const { body } = answer;
  if (answer.status !== 200 || typeof body !== 'object' || body === null || !('metrics' in body))
    throw new HubgateError('no-gateway', refusalText(address, answer));
  // The response of hubgate's own admin API.
  return body as StatusReport;
}

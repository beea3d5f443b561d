import { setTimeout } from 'node:timers/promises';
import { Command } from 'commander';
import { codeOf, HubgateError } from '../../kernel/error.ts';
import {
  adminAddressOf,
  getFromAdmin,
  isDone,
  postToAdmin,
  refusalText,
} from '../admin-request.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import type { Output } from '../terminal.ts';
import { configIfAny } from '../read-config.ts';

interface StopFlags extends ConfigSource {
  readonly address?: string;
  readonly wait?: true;
}

/** How often `stop` checks whether the gateway is still running, in milliseconds. */
const POLL_MS = 200;

/** `hubgate stop`: stops a running gateway, which finishes requests in progress. */
export function stopCommand(output: Output): Command {
  return withConfigSource(new Command('stop'))
    .description('stop the running gateway')
    .option('--address <host:port>', 'admin address of the gateway (default: the one in the file)')
    .option('--wait', 'wait until the gateway has finished its requests and stopped')
    .action(async (flags: StopFlags, command: Command) => {
      const config = flags.address === undefined ? configIfAny(flags, command) : null;
      const address = adminAddressOf(flags.address, config?.options);
      const answer = await postToAdmin(address, '/stop');
      if (!isDone(answer)) throw new HubgateError('stop-failed', refusalText(address, answer));
      output.note(`The gateway on ${address} is stopping`);
      if (flags.wait !== true) return;
      await gone(address);
      output.note('The gateway has stopped');
    });
}

/** Resolves when the admin API no longer responds; it is closed last. */
async function gone(address: string): Promise<void> {
  for (;;) {
    try {
      await getFromAdmin(address, '/health/ready');
    } catch (error) {
      if (codeOf(error) === 'no-gateway') return;
      throw error;
    }
    await setTimeout(POLL_MS);
  }
}

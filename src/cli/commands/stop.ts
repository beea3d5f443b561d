import { setTimeout } from 'node:timers/promises';
import type { Command } from 'commander';
import { codeOf, HubgateError } from '../../kernel/error.ts';
import {
  getFromAdmin,
  isDone,
  postToAdmin,
  refusalText,
  gatewayAddress,
} from '../admin-request.ts';
import { atGateway, type GatewayFlags } from '../config-source.ts';
import type { Output } from '../terminal.ts';

interface StopFlags extends GatewayFlags {
  readonly wait?: true;
}

/** How often `stop` checks whether the gateway is still running, in milliseconds. */
const POLL_MS = 200;

/** `hubgate stop`: stops a running gateway, which finishes requests in progress. */
export function stopCommand(output: Output): Command {
  return atGateway('stop')
    .description('stop the running gateway')
    .option('--wait', 'wait until the gateway has finished its requests and stopped')
    .action(async (flags: StopFlags, command: Command) => {
      const address = gatewayAddress(flags, command);
      const answer = await postToAdmin(address, '/stop');
      if (!isDone(answer)) throw new HubgateError('stop-failed', refusalText(address, answer));
      output.note(`The gateway on ${address} is stopping`);
      if (flags.wait !== true) return;
      await gone(address, answer.instance);
      output.note('The gateway has stopped');
    });
}

/**
 * Resolves when the admin API of a process no longer responds; it is closed last. Another gateway may already have its
 * address.
 */
async function gone(address: string, instance: string | null): Promise<void> {
  for (;;) {
    try {
      const answering = await getFromAdmin(address, '/health/ready');
      if (answering.instance !== instance) return;
    } catch (error) {
      if (codeOf(error) === 'no-gateway') return;
      throw error;
    }
    await setTimeout(POLL_MS);
  }
}

import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { adminAddressOf, isDone, postToAdmin, refusalText } from '../admin-request.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import type { Output } from '../output.ts';
import { configIfAny } from '../storage.ts';

interface StopFlags extends ConfigSource {
  readonly address?: string;
}

/** `hubgate stop`: ends a running gateway, which finishes what is in flight. */
export function stopCommand(output: Output): Command {
  return withConfigSource(new Command('stop'))
    .description('stop the running gateway')
    .option('--address <host:port>', 'admin address of the gateway, if not the one of the file')
    .action(async (flags: StopFlags, command: Command) => {
      const config = flags.address === undefined ? configIfAny(flags, command) : null;
      const address = adminAddressOf(flags.address, config?.options);
      const answer = await postToAdmin(address, '/stop');
      if (!isDone(answer)) throw new HubgateError('stop-failed', refusalText(address, answer));
      output.note(`The gateway on ${address} stops`);
    });
}

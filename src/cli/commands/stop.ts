import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { DEFAULT_ADMIN, postToAdmin } from '../admin-request.ts';

/** `hubgate stop`: ends a running gateway, which finishes what is in flight. */
export function stopCommand(): Command {
  return new Command('stop')
    .description('stop the running gateway')
    .option('--address <host:port>', 'admin address of the gateway', DEFAULT_ADMIN)
    .action(async ({ address }: { readonly address: string }) => {
      const { status } = await postToAdmin(address, '/stop');
      if (status === 200) return;
      throw new HubgateError('stop-failed', `The gateway on ${address} answered ${status}`);
    });
}

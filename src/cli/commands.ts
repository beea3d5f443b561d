import type { Command } from 'commander';
import type { Output } from './output.ts';

/**
 * Every command of `hubgate`, in the order of the help. A command is loaded when it is called, and
 * loads for itself what only its action needs: `hubgate version` reads a handful of files.
 */
export const COMMANDS = {
  init: async (output) => (await import('./commands/init.ts')).initCommand(output),
  run: async () => (await import('./commands/run.ts')).runCommand(),
  validate: async (output) => (await import('./commands/validate.ts')).validateCommand(output),
  adapt: async (output) => (await import('./commands/adapt.ts')).adaptCommand(output),
  fmt: async (output) => (await import('./commands/fmt.ts')).fmtCommand(output),
  reload: async (output) => (await import('./commands/reload.ts')).reloadCommand(output),
  stop: async (output) => (await import('./commands/stop.ts')).stopCommand(output),
  top: async (output) => (await import('./commands/top.ts')).topCommand(output),
  'reverse-proxy': async (output) =>
    (await import('./commands/reverse-proxy.ts')).reverseProxyCommand(output),
  token: async (output) => (await import('./commands/token.ts')).tokenCommand(output),
  'hash-password': async (output) =>
    (await import('./commands/hash-password.ts')).hashPasswordCommand(output),
  publish: async (output) => (await import('./commands/publish.ts')).publishCommand(output),
  subscribe: async (output) => (await import('./commands/subscribe.ts')).subscribeCommand(output),
  trust: async (output) => (await import('./commands/trust.ts')).trustCommand(output),
  untrust: async (output) => (await import('./commands/untrust.ts')).untrustCommand(output),
  history: async (output) => (await import('./commands/history.ts')).historyCommand(output),
  'list-certificates': async (output) =>
    (await import('./commands/list-certificates.ts')).listCertificatesCommand(output),
  environ: async (output) => (await import('./commands/environ.ts')).environCommand(output),
  version: async (output) => (await import('./commands/version.ts')).versionCommand(output),
} satisfies Record<string, (output: Output) => Promise<Command>>;

/** The command that these arguments call; all of them where that is not plain: for help, for a mistake. */
export async function commandsFor(args: readonly string[], output: Output): Promise<Command[]> {
  const [word = ''] = args;
  const named = Object.entries(COMMANDS).filter(([name]) => name === word);
  const wanted = named.length > 0 ? named : Object.entries(COMMANDS);
  return Promise.all(wanted.map(([, load]) => load(output)));
}

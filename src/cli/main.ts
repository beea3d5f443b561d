#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problem.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { adaptCommand } from './commands/adapt.ts';
import { completionCommand } from './commands/completion.ts';
import { environCommand } from './commands/environ.ts';
import { fmtCommand } from './commands/fmt.ts';
import { historyCommand } from './commands/history.ts';
import { listCertificatesCommand } from './commands/list-certificates.ts';
import { publishCommand } from './commands/publish.ts';
import { reloadCommand } from './commands/reload.ts';
import { reverseProxyCommand } from './commands/reverse-proxy.ts';
import { runCommand } from './commands/run.ts';
import { stopCommand } from './commands/stop.ts';
import { subscribeCommand } from './commands/subscribe.ts';
import { tokenCommand } from './commands/token.ts';
import { trustCommand } from './commands/trust.ts';
import { untrustCommand } from './commands/untrust.ts';
import { validateCommand } from './commands/validate.ts';
import { versionCommand } from './commands/version.ts';
import { EXIT, processOutput } from './output.ts';
import { packageVersion } from './package-version.ts';

const program = new Command('hubgate')
  .description('a gateway with a publish/subscribe hub in front of an existing web site')
  .version(packageVersion());
for (const command of [
  runCommand(),
  validateCommand(processOutput),
  adaptCommand(processOutput),
  fmtCommand(processOutput),
  reloadCommand(processOutput),
  stopCommand(),
  reverseProxyCommand(),
  tokenCommand(processOutput),
  publishCommand(processOutput),
  subscribeCommand(processOutput),
  trustCommand(processOutput),
  untrustCommand(processOutput),
  historyCommand(processOutput),
  listCertificatesCommand(processOutput),
  environCommand(processOutput),
  versionCommand(processOutput),
  completionCommand(program, processOutput),
]) {
  program.addCommand(command);
}
for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
  command.exitOverride().showHelpAfterError('(--help tells more)');
}

// A reader that has seen enough (`hubgate subscribe | head -1`) is no fault.
process.stdout.on('error', (error) => {
  process.exit(codeOf(error) === 'EPIPE' ? EXIT.ok : EXIT.failed);
});

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // commander has printed the help or the mistake already.
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    process.stderr.write(
      error instanceof ConfigError ? `${error.message}\n` : `hubgate: ${messageOf(error)}\n`,
    );
    process.exitCode = codeOf(error) === 'invalid-argument' ? EXIT.usage : EXIT.failed;
  }
}

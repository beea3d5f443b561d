import { Command } from 'commander';
import { ConfigError, describeProblem, type Problem, problemData } from '../../config/problem.ts';
import { type ConfigSource, environmentOf, withConfigSource } from '../config-source.ts';
import { EXIT, type Output } from '../terminal.ts';
import { readConfig } from '../read-config.ts';

interface ValidateFlags extends ConfigSource {
  readonly json?: true;
}

/** `hubgate validate`: performs all checks of `run`, without binding a port or using the network. */
export function validateCommand(output: Output): Command {
  return withConfigSource(new Command('validate'))
    .description('check a configuration and print every mistake with its place')
    .option('--json', 'print the mistakes as JSON')
    .action((flags: ValidateFlags) => {
      const problems = problemsOf(flags);
      const valid = !problems.some(({ severity }) => severity === 'error');
      if (flags.json === true) output.result(JSON.stringify(problems.map(problemData)));
      else {
        for (const problem of problems) output.note(describeProblem(problem));
        if (valid) output.result(`${flags.config} is valid`);
      }
      if (!valid) process.exitCode = EXIT.failed;
    });
}

function problemsOf(source: ConfigSource): readonly Problem[] {
  try {
    return readConfig(source, environmentOf(source)).warnings;
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { runCommand } from '../support/process.ts';
import { isMissed } from '../support/program.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** What a shell offers for a line, given its completion script. */
type Complete = (line: string, directory: string, script: string) => string;

const SHELLS: Readonly<Record<string, Complete>> = {
  bash: (line, directory, script) =>
    run('bash', ['--norc', '-c', BASH, 'bash', script, ...line.split(' ')], directory),
  zsh: (line, directory, script) => run('zsh', ['-f', '-c', ZSH, 'zsh', script, line], directory),
  fish: (line, directory, script) =>
    run('fish', ['--no-config', '-c', FISH, script, line], directory),
};

const BASH = `source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 ))
_hubgate
printf '%s\\n' "\${COMPREPLY[@]}"`;

/** A line editor behind a pseudo-terminal: the two tabs complete, and list what is left open. */
const ZSH = `zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell "stty rows 200 cols 200; PS1='go'ahead RPS1= LISTMAX=1000; unsetopt zle_bracketed_paste 2>/dev/null"
zpty -w shell "autoload -Uz compinit; compinit -u -D; source $1; echo REA''DY"
# The prompt says that the editor reads keys; typed before, a tab is only a tab.
zpty -r -m shell seen '*READY*goahead*'
zpty -w -n shell "$2"$'\\t\\t\\C-U'
zpty -w shell "echo DO''NE"
zpty -r -m shell seen '*DONE*'
print -r -- "$seen"`;

const FISH = 'source $argv[1]; complete -C $argv[2]';

describe('hubgate completion', () => {
  it('refuses a shell that it does not know', async () => {
    assert.equal((await runCommand(['completion', 'tcsh'])).code, 64);
  });

  for (const [shell, offer] of Object.entries(SHELLS)) {
    it(`completes commands, options and choices in ${shell}`, async (test) => {
      if (!installed(test, shell)) return;
      const directory = await mkdtemp(join(tmpdir(), 'hubgate-completion-'));
      removeWith(test, directory);
      const { code, stdout } = await runCommand(['completion', shell]);
      assert.equal(code, 0);
      const script = join(directory, 'script');
      await writeFile(script, stdout);
      for (const [line, offered, not] of [
        ['val', ['validate'], ['fmt']],
        ['re', ['reload', 'reverse-proxy'], ['validate']],
        ['fmt --w', ['--write'], ['--diff']],
        ['adapt --show', ['--show-secrets'], ['--to']],
        ['adapt --to ', ['json', 'yaml'], ['hubfile']],
        ['completion ', ['bash', 'zsh', 'fish', 'powershell'], []],
        ['token ins', ['inspect'], ['--']],
        ['token --sub', ['--subscribe', '--subscribe-urlpattern'], ['--topic']],
        ['token inspect --ac', ['--action'], ['--alg']],
        ['token inspect --action ', ['publish', 'subscribe'], ['--config']],
      ] as const) {
        const seen = offer(`hubgate ${line}`, directory, script);
        for (const word of offered) assert.ok(seen.includes(word), `${line}: ${word}\n${seen}`);
        for (const word of not) assert.ok(!seen.includes(word), `${line}: not ${word}\n${seen}`);
      }
    });
  }
});

function run(shell: string, args: readonly string[], cwd: string): string {
  // The words of this machine's own files must not be taken for what the script offers.
  return execFileSync(shell, args, { encoding: 'utf8', cwd, env: { ...process.env, HOME: cwd } });
}

/** Without the shell the test is skipped aloud, and in CI fails. */
function installed(test: TestContext, shell: string): boolean {
  if (['/bin', '/usr/bin', '/usr/local/bin'].some((path) => existsSync(join(path, shell)))) {
    return true;
  }
  isMissed(test, `${shell} is not installed (apt-get install ${shell})`);
  return false;
}

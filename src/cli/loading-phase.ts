// While a program is loaded, Node's loader runs some functions thousands of times. V8 takes them for code that
// matters and optimises them, which brings 8 MB of its compilers into memory, and it lets the young generation grow
// to 8 MB. A gateway without load would keep both, so V8 does neither until everything is loaded.

import { setFlagsFromString } from 'node:v8';

/** From this version of Node on, Maglev is a second optimising compiler that is on. */
const MAGLEV_SINCE = 24;

/** Time in milliseconds in which most gateways start. One that takes longer has something to compute. */
const START_MS = 1_000;

/** Keeps V8 from optimising, and the young generation as small as it begins, until {@link loadingEnds}. */
export function loadingBegins(): void {
  for (const compiler of compilers()) setFlagsFromString(`--no-${compiler}`);
  setGrowth(1);
}

/**
 * Gives V8 its defaults back: the young generation may grow now, and a moment later what runs often is optimised. A
 * gateway imports further parts while it starts.
 */
export function loadingEnds(): void {
  setGrowth(2);
  setTimeout(() => {
    for (const compiler of compilers()) setFlagsFromString(`--${compiler}`);
  }, START_MS).unref();
}

/** The compilers that may be switched off and on again: none if the options of Node mention one. */
function compilers(): readonly string[] {
  if (nodeOptionsMention(/--(?:no-?)?(?:opt|turbofan|maglev)\b|jitless|lite[-_]mode/)) return [];
  const [major = 0] = process.versions.node.split('.').map(Number);
  return major >= MAGLEV_SINCE ? ['opt', 'maglev'] : ['opt'];
}

function setGrowth(factor: number): void {
  if (nodeOptionsMention(/semi[-_]space/)) return;
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

/** Whether an option of Node, on the command line or in `NODE_OPTIONS`, matches `pattern`. */
export function nodeOptionsMention(pattern: RegExp): boolean {
  return pattern.test([...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].join(' '));
}

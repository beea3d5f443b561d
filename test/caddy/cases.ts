// The text in which cases are written, so that several hundred of them can be read at a glance:
//
//     === header: the later of two lines wins
//     header X-A one
//     header X-A two
//     > GET /
//     > POST /a | X-B: 1 || the body
//     = different: why this is a decision
//
// Above the requests stands what is inside a site, or after `= whole` a whole Caddyfile. In it, FILES is
// the directory of the files, UPSTREAM an app that tells what it saw, DOWN an address where nothing
// answers, PORT the port on which the program listens, SECURE another one. Without a line of `=` both answer alike.

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface ComparedCase {
  /** Where it is written. */
  readonly file: string;
  readonly title: string;
  readonly text: string;
  readonly requests: readonly ComparedRequest[];
  readonly verdict: Verdict;
  /** The text is a whole Caddyfile, not the inside of a site. */
  readonly isWhole: boolean;
  /** Debian's Caddy answers otherwise than the present one. */
  readonly isNewer: boolean;
  /** Over HTTP/2 the answer of Caddy is malformed. */
  readonly isHttp1: boolean;
}

export interface ComparedRequest {
  /** As it is written. */
  readonly line: string;
  readonly method: string;
  readonly target: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string | undefined;
}

/** What becomes of a text of Caddy in hubgate. */
type Verdict =
  | { readonly kind: 'same' }
  /** Some answer differs, by a decision that the page for those who come from Caddy tells. */
  | { readonly kind: 'different'; readonly why: string }
  /** The reader refuses it with a message or a hint that contains this. */
  | { readonly kind: 'refused'; readonly message: string };

/** What a case says of itself without a reason. */
const MARKS: readonly string[] = ['http1', 'newer', 'whole'];

const DIRECTORY = fileURLToPath(new URL('cases/', import.meta.url));

/** All cases, in the order of their files. */
export function readCases(): readonly ComparedCase[] {
  return readdirSync(DIRECTORY)
    .sort()
    .flatMap((file) => casesIn(readFileSync(`${DIRECTORY}${file}`, 'utf8'), file));
}

function casesIn(text: string, file: string): readonly ComparedCase[] {
  return text
    .split(/^=== /m)
    .slice(1)
    .map((one) => parsed(one, file));
}

function parsed(text: string, file: string): ComparedCase {
  const [title = '', ...lines] = text.split('\n');
  const directives = lines.filter((line) => !/^[>=] /.test(line));
  const words = lines.filter((line) => line.startsWith('= ')).map((line) => line.slice(2));
  const requests = lines.filter((line) => line.startsWith('> ')).map((line) => request(line));
  let verdict: Verdict = { kind: 'same' };
  for (const word of words.filter((each) => !MARKS.includes(each))) {
    const [, kind, rest = ''] = /^(different|refused): (.+)$/.exec(word) ?? [];
    if (kind === 'different') verdict = { kind, why: rest };
    else if (kind === 'refused') verdict = { kind, message: rest };
    else throw new Error(`${file}, ${title}: what is "= ${word}"?`);
  }
  return {
    file,
    title,
    text: `${directives.join('\n').trimEnd()}\n`,
    requests,
    verdict,
    isWhole: words.includes('whole'),
    isNewer: words.includes('newer'),
    isHttp1: words.includes('http1'),
  };
}

function request(line: string): ComparedRequest {
  const [head = '', ...body] = line.slice(2).split(' || ');
  const [start = '', ...fields] = head.split(' | ');
  const [method = '', target = ''] = start.split(' ');
  const headers = fields.map((field) => {
    const colon = field.indexOf(':');
    return [field.slice(0, colon), field.slice(colon + 1).trim()] as const;
  });
  return { line, method, target, headers, body: body[0]?.replaceAll('\\n', '\n') };
}

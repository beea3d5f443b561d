import type { DirectiveTable } from './directive-table.ts';
import type { Problem } from '../config/problem.ts';
import type { TextEdit } from './text-edit.ts';
import { nameOf, optionsOf, type WrittenLine } from './written-lines.ts';

/**
 * Directives and options that restrict access. Without one of them, the Hubfile would allow more than the
 * Caddyfile.
 */
const GUARDS: ReadonlySet<string> = new Set([
  'abort',
  'basic_auth',
  'basicauth',
  'bind',
  'client_auth',
  'error',
  'forward_auth',
  'import',
  'request_header',
]);
const CLOSED_FIRST = `
# a site that has lost what keeps somebody out answers 503 before anything else
order error first
`;

/**
 * Lines that are left out become comments, each with its reasons. `error 503` takes the place of anything
 * that restricted access.
 */
export function commentsOf(
  lines: readonly WrittenLine[],
  leftOut: ReadonlyMap<WrittenLine, readonly Problem[]>,
  text: string,
  table: DirectiveTable,
): readonly TextEdit[] {
  const all = [...leftOut.keys()];
  const options = optionsOf(lines);
  const comments = all.map((line) => {
    const within = [...leftOut].filter(
      ([inner]) => line.start <= inner.start && inner.end <= line.end,
    );
    const reasons = within.flatMap(([, problems]) => problems);
    return commented(line, reasons, text);
  });
  const closed = closings(all, table);
  const own = [
    ...(closed.length > 0 ? [CLOSED_FIRST] : []),
    // The default of `admin` is an address, so an option that restricted the API must keep doing so.
    ...(all.some((line) => nameOf(line) === 'admin' && line.outer === options)
      ? ['\nadmin off\n']
      : []),
  ].join('');
  if (own === '') return comments;
  const at = options?.blockStart ?? 0;
  const block = options === undefined ? `{${own}}\n` : own;
  return [...comments, ...closed, { start: at, end: at, text: block }];
}

function commented(line: WrittenLine, reasons: readonly Problem[], text: string): TextEdit {
  const { start, end } = line;
  const indentation = text.slice(text.lastIndexOf('\n', start - 1) + 1, start).length;
  const [first = '', ...others] = text.slice(start, end).split('\n');
  const written = [
    first,
    ...others.map((each) => each.replace(new RegExp(`^\\s{0,${indentation}}`), '')),
  ];
  const said = reasons.map(({ message, hint }) =>
    hint === undefined ? `left out: ${message}` : `left out: ${message}: ${hint}`,
  );
  // The lines of a snippet that is used several times are reported several times.
  return { start, end, text: [...new Set(said), ...written].map((each) => `# ${each}`).join('\n') };
}

function closings(leftOut: readonly WrittenLine[], table: DirectiveTable): TextEdit[] {
  const lost = new Set(leftOut.map(nameOf).filter((name) => name.startsWith('@')));
  return leftOut.filter(guards).flatMap((line): TextEdit[] => {
    const directive = directiveOf(line, table);
    if (directive === undefined) return [];
    const matcher = line.words[1]?.text ?? '';
    const isKept = directive === line && /^[/@]/.test(matcher) && !lost.has(matcher);
    const text = `\nerror ${isKept ? `${matcher} ` : ''}503\n`;
    return [{ start: directive.end, end: directive.end, text }];
  });
}

/** Whether requests that the line refuses would be accepted without it. */
function guards(line: WrittenLine): boolean {
  const name = nameOf(line);
  const refuses = name === 'respond' && line.words.some(({ text }) => /^[45]\d\d$/.test(text));
  return GUARDS.has(name) || refuses || /auth/.test(name) || line.inner.some(guards);
}

/**
 * The directive that contains a line, or the line itself if it is one; undefined if no access has to be
 * restricted any more.
 */
function directiveOf(line: WrittenLine, table: DirectiveTable): WrittenLine | undefined {
  let found: WrittenLine | undefined;
  let inside = line;
  for (let { outer } = line; outer !== null; { outer } = outer) {
    const name = nameOf(outer);
    if (outer.words.length === 0 || name === 'handle_errors') return undefined;
    if (outer.outer === null || table.find(name)?.holdsDirectives === true) found ??= inside;
    inside = outer;
  }
  return found;
}

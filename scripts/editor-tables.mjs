// What the editor tells of directives, options, conditions and placeholders: their usage as the program has
// it, explained by the tables of docs/hubfile.md.

/** A word of the language itself, not a stand-in for one. */
const LITERAL = /^[a-z][a-z0-9_.-]*$/;
/** Sections of docs/hubfile.md whose name is not the directive's. */
const SECTIONS = { mercure: 'hub' };

/**
 * @param page the text of docs/hubfile.md
 * @param globalUsage, directives, conditions what the language has
 * @param order the names of the directives as they run
 */
export function editorTables(page, { globalUsage, directives, conditions, order }) {
  const sections = sectionsOf(page);
  const all = {};
  for (const name of order.filter((each) => Object.hasOwn(directives, each))) {
    const { usage, summary, holdsDirectives } = directives[name];
    const section = SECTIONS[name] ?? name;
    const { rows } = sections.get(section) ?? { rows: new Map() };
    const entry = entriesOf(parse(usage), section, rows)[name];
    if (entry === undefined) throw new Error(`the usage of ${name} does not begin with its name`);
    all[name] = { ...entry, about: summary, ...(holdsDirectives ? { holds: 'directives' } : {}) };
  }
  const [{ block }] = parse(globalUsage);
  const globals = entriesOf(block, 'global options', sections.get('global options').rows);
  // The front door has a section of its own.
  const servers = block.find(({ head }) => head.startsWith('servers'));
  globals.servers.options = entriesOf(servers.block, 'servers', sections.get('servers').rows);
  for (const each of [...Object.values(all), ...Object.values(globals)]) include(each, all);
  return {
    directives: all,
    globals,
    conditions: Object.fromEntries(
      Object.entries(conditions).map(([name, { usage, summary }]) => {
        const [entry] = Object.values(entriesOf(parse(usage), 'matchers', new Map()));
        const holds = name === 'not' ? { holds: 'conditions' } : {};
        return [name, { ...entry, about: `holds for ${summary}`, ...holds }];
      }),
    ),
    placeholders: placeholdersOf(page),
  };
}

/** Lines of a usage, each with its block. */
function parse(usage) {
  let at = 0;
  const block = () => {
    const lines = [];
    let head = '';
    let inner = null;
    const end = () => {
      const text = head
        .trim()
        .replace(/\s*\[$/, '')
        .replace(/^\]/, '')
        .trim();
      if (text !== '' || inner !== null) lines.push({ head: text, block: inner });
      [head, inner] = ['', null];
    };
    for (; at < usage.length; at++) {
      const character = usage[at];
      if (character === '<') {
        const close = usage.indexOf('>', at);
        head += usage.slice(at, close + 1);
        at = close;
      } else if (character === '\n' || character === ';') end();
      else if (character === '}') break;
      else if (character === '{') {
        at += 1;
        inner = block();
      } else head += inner === null ? character : '';
    }
    end();
    return lines;
  };
  return block();
}

function entriesOf(lines, section, rows, above = '') {
  const entries = {};
  const names = lines.flatMap(({ head }) => head.split(' ')[0].split('|'));
  // What is further inside has a row of its own, if no option of this block has its name.
  const inside = new Map([...rows].filter(([name]) => !names.includes(name)));
  for (const { head, block } of lines) {
    const [first = '', ...others] = head.split(' ');
    for (const name of first.split('|').filter((each) => LITERAL.test(each))) {
      const about = rows.get(name) ?? above;
      const known = (entries[name] ??= { forms: [], about, section });
      known.forms.push([name, ...others].join(' '));
      read(known, block, others[0] ?? '', { section, rows: inside, about });
    }
  }
  return entries;
}

/** What a block may hold: of a form with a word of its own, such as `transport lmdb`, only there. */
function read(entry, block, second, { section, rows, about }) {
  if (block === null) return;
  const heads = block.map(({ head }) => head);
  const from = heads.flatMap((head) => /^<options of ([\w ]+)…>$/.exec(head)?.[1] ?? []);
  if (from.length > 0) entry.include = from[0];
  if (heads.includes('<directives…>')) entry.holds = 'directives';
  if (heads.includes('<conditions…>')) entry.holds = 'conditions';
  const options = entriesOf(block, section, rows, about);
  if (Object.keys(options).length === 0) return;
  if (LITERAL.test(second)) entry.variants = { ...entry.variants, [second]: options };
  else entry.options = { ...entry.options, ...options };
}

/** `<options of …>` are those of a directive, or of an option of one. */
function include(entry, all) {
  const options = [entry.options, ...Object.values(entry.variants ?? {})];
  for (const each of options.flatMap((table) => Object.values(table ?? {}))) include(each, all);
  if (entry.include === undefined) return;
  const [name, ...path] = entry.include.split(' ');
  const other = path.reduce((outer, word) => outer.options[word], all[name]);
  entry.options = { ...other.options, ...entry.options };
  if (other.variants !== undefined) entry.variants = { ...other.variants, ...entry.variants };
  delete entry.include;
}

/** Each heading, in lower case, with the first words of the rows below it and what they say. */
function sectionsOf(page) {
  const sections = new Map();
  let rows = new Map();
  for (const line of page.split('\n')) {
    const heading = /^##+ (.+)$/.exec(line)?.[1];
    if (heading !== undefined) {
      rows = new Map();
      sections.set(heading.toLowerCase(), { rows });
    } else if (line.startsWith('|')) addRow(rows, line);
  }
  return sections;
}

function addRow(rows, line) {
  const cells = cellsOf(line);
  const about = cells.at(-1);
  const usual = cells.length > 2 && cells[1] !== '' ? `Default: ${cells[1]}` : '';
  const text = [about, usual].filter((part) => part !== '').join('. ');
  for (const span of spansOf(cells[0])) {
    const name = /^\S+/.exec(span)?.[0] ?? '';
    for (const each of name.split('|')) if (text !== '' && !rows.has(each)) rows.set(each, text);
  }
}

function placeholdersOf(page) {
  const from = page.indexOf('\n### Placeholders\n');
  const rows = page.slice(from, page.indexOf('\n### ', from + 1)).matchAll(/^\| `\{.*$/gm);
  return [...rows].flatMap(([line]) => {
    const [names, when, about] = cellsOf(line);
    return spansOf(names).map((span) => ({ text: span, when, about }));
  });
}

function cellsOf(line) {
  const cells = line.split(/(?<!\\)\|/).slice(1, -1);
  // Links lead from the page.
  return cells.map((cell) =>
    cell
      .trim()
      .replaceAll('\\|', '|')
      .replaceAll(/\[([^\]]+)\]\([^)]*\)/g, '$1'),
  );
}

function spansOf(cell) {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, span]) => span);
}

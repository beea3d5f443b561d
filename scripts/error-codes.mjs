// Writes docs/errors.md: each code of an error or a warning with its messages, as the source has them.
// `--check` writes nothing and fails if the page is out of date.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSync } from 'oxc-parser';
import { root } from './install.mjs';

const CODE = /^[a-z0-9]+(?:-[a-z0-9]+)+$/;
const PAGE = 'docs/errors.md';
/** The classes of errors that have a code. */
const THROWN = /(?:HubgateError|AcmeError|Problem)$/;
/** The functions of config/problem.ts, whose first argument is always a code. */
const PROBLEMS = new Set(['error', 'warning']);

const found = new Map();
/** The constants of the file that is read: where each may be used, and what it is. */
let constants = [];
const names = readdirSync(join(root, 'src'), { recursive: true });
for (const name of names.sort(byCodePoint)) {
  if (!name.endsWith('.ts')) continue;
  const file = join('src', name);
  const text = readFileSync(join(root, file), 'utf8');
  const { program } = parseSync(file, text);
  constants = [];
  collectConstants(program, program);
  visit(program);
}

const page = `# Errors by code

Each error and warning has a code that never changes. You find it in \`validate --json\`, in the log (\`code\`) and in
\`HubgateError.code\`. The message says what is wrong and where, and often how to fix it. hubgate fills in the words in braces.
A row without a message has one that names its cause. What an authority, a database or the system reports has their codes.
\`node scripts/error-codes.mjs\` writes this page.

| code | | message |
|---|---|---|
${[...found]
  .sort(([a], [b]) => byCodePoint(a, b))
  .map(([code, { kinds, messages }]) => {
    // In an order that does not change when a file moves.
    const said = [...messages].map(cell).sort(byCodePoint).join('<br>') || '';
    return `| \`${code}\` | ${[...kinds].join(', ')} | ${said} |`;
  })
  .join('\n')}
`;
const path = join(root, PAGE);
if (!process.argv.includes('--check')) writeFileSync(path, page);
else if (readFileSync(path, 'utf8') !== page) {
  console.error(`${PAGE} is out of date. Run: node scripts/error-codes.mjs`);
  process.exit(1);
}

/** Looks for `new HubgateError('code', message)`, `{ severity, code, message }` and calls with a code. */
function visit(node) {
  if (Array.isArray(node)) for (const one of node) visit(one);
  else if (node !== null && typeof node === 'object') {
    if (node.type === 'NewExpression' && THROWN.test(node.callee.name ?? '')) {
      const at = node.arguments.findIndex((argument) => literal(argument) !== null);
      if (at !== -1) note(literal(node.arguments[at]), 'error', messagesIn(node.arguments, at));
    } else if (node.type === 'ObjectExpression') noteProblem(node);
    else if (node.type === 'CallExpression') noteCall(node);
    for (const inner of Object.values(node)) visit(inner);
  }
}

function noteProblem({ properties }) {
  const value = (name) => properties.find(({ key }) => key?.name === name)?.value;
  const code = literal(value('code'));
  const message = value('message');
  if (code === null || (message === undefined && value('severity') === undefined)) return;
  note(code, value('severity')?.value ?? 'error', messagesOf(message));
}

/** \`fail(place, 'code', 'message')\`, \`report.warning('code', 'message')\` and their like. */
function noteCall({ callee, arguments: given }) {
  const name = callee.name ?? callee.property?.name ?? '';
  const at = given.findIndex((argument) => literal(argument) !== null);
  if (at === -1 || !/error|warn|problem|fail|fault|refuse|complain|^none$/i.test(name)) return;
  const messages = messagesIn(given, at);
  if (messages.length === 0 && !PROBLEMS.has(name)) return;
  note(literal(given[at]), /warn/i.test(name) ? 'warning' : 'error', messages);
}

function note(code, kind, messages) {
  if (code === null) return;
  const entry = found.get(code) ?? { kinds: new Set(), messages: new Set() };
  entry.kinds.add(kind);
  for (const message of messages) entry.messages.add(message);
  found.set(code, entry);
}

function literal(node) {
  if (node?.type !== 'Literal' || typeof node.value !== 'string') return null;
  return CODE.test(node.value) ? node.value : null;
}

/** Remembers each constant with the block in which it can be used. */
function collectConstants(node, block) {
  if (Array.isArray(node)) for (const one of node) collectConstants(one, block);
  else if (node !== null && typeof node === 'object') {
    if (node.type === 'VariableDeclarator' && node.init !== null) {
      constants.push({ name: node.id.name, block, init: node.init });
    }
    const inside = node.type === 'BlockStatement' ? node : block;
    for (const inner of Object.values(node)) collectConstants(inner, inside);
  }
}

/** The messages of the argument after the code. A place in a file, which is no text, may stand between them. */
function messagesIn(given, at) {
  const [next, afterPlace] = given.slice(at + 1);
  const messages = messagesOf(next);
  const name = next?.name ?? next?.property?.name ?? '';
  const isPlace = name !== '' && !/message|text|why|what|reason|described/i.test(name);
  return messages.length === 0 && isPlace ? messagesOf(afterPlace) : messages;
}

/** Every message that an expression may be: both sides of a condition, the value of a constant. */
function messagesOf(node) {
  if (node?.type === 'ConditionalExpression') {
    return [...messagesOf(node.consequent), ...messagesOf(node.alternate)];
  }
  if (node?.type === 'Identifier') {
    const within = constants.filter(
      ({ name, block }) => name === node.name && block.start <= node.start && node.end <= block.end,
    );
    // The innermost block begins last.
    const [nearest] = within.sort((a, b) => b.block.start - a.block.start);
    return nearest === undefined ? [] : messagesOf(nearest.init);
  }
  const message = messageOf(node);
  return message === null ? [] : [message];
}

/** The text of a message, with names in braces for what is filled in; null for what is not text. */
function messageOf(node) {
  switch (node?.type) {
    case 'Literal':
      return typeof node.value === 'string' ? node.value : null;
    case 'TemplateLiteral':
      return node.quasis
        .map(
          ({ value }, at) =>
            value.cooked + (at < node.expressions.length ? hole(node.expressions[at]) : ''),
        )
        .join('');
    case 'BinaryExpression': {
      const parts = [node.left, node.right].map((part) => messageOf(part) ?? hole(part));
      return node.operator === '+' ? parts.join('') : null;
    }
    default:
      return null;
  }
}

/** A word for what is filled in: the value of a constant, or the name of what the value is made of. */
function hole(node) {
  switch (node.type) {
    case 'Identifier': {
      if (/^(?:cause|error|failure|thrown)$/.test(node.name)) return '{reason}';
      if (!/^[A-Z0-9_]+$/.test(node.name)) return `{${node.name}}`;
      const constant = constants.find(({ name }) => name === node.name)?.init;
      if (constant?.type === 'Literal') return String(constant.value);
      const words = node.name.toLowerCase().replaceAll('_', ' ');
      return words.startsWith('max ') ? '{limit}' : `{${words}}`;
    }
    case 'MemberExpression':
      return node.property?.name === 'length' ? '{number}' : `{${node.property?.name ?? 'value'}}`;
    case 'CallExpression':
      return calledHole(node);
    default:
      return '{value}';
  }
}

/** `quote(name)` is the name, `list.join()` the list, and `nameOf(host)` the name. */
function calledHole({ callee, arguments: [given] }) {
  const name = callee.name ?? callee.property?.name ?? '';
  const [, what] = /^(\w+?)(?:Of|Text)$/.exec(name) ?? [];
  if (what !== undefined) return `{${what}}`;
  if (name === 'quote') return '{word}';
  const from =
    callee.type === 'MemberExpression' && callee.object.name !== 'JSON' ? callee.object : given;
  return from === undefined || from.type === 'CallExpression' ? '{value}' : hole(from);
}

function cell(message) {
  return message
    .replaceAll('|', '\\|')
    .replaceAll('<', '&lt;')
    .replaceAll('\n', ' ')
    .replaceAll('`', "'");
}

function byCodePoint(a, b) {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

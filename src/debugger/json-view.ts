import { element } from './element.ts';
import { parseJson } from '../kernel/parse.ts';

/** Members and entries that are drawn; a larger value is shown as text. */
const MAX_NODES = 200;
/** Longest text that is shown, in characters. */
const MAX_SHOWN = 20_000;
/** Characters of data that a row shows on its single line. */
const MAX_LINE = 300;
/** Levels that are open at first. */
const OPEN_LEVELS = 2;

/** Data as a tree that can be folded if it is JSON with members, otherwise as text. */
export function dataView(text: string): HTMLElement {
  // Data is any text, and often but not always JSON.
  const value = parseJson(text);
  if (typeof value !== 'object' || value === null || countNodes(value) > MAX_NODES) {
    const cut = text.length > MAX_SHOWN;
    const shown = cut ? `${text.slice(0, MAX_SHOWN)}…` : text;
    const rest = cut ? ` (${text.length - MAX_SHOWN} characters more)` : '';
    return element('pre', { class: 'data' }, shown === '' ? '(empty)' : shown, rest);
  }
  return jsonView(value);
}

/** The beginning of data on one line; JSON without its white space. */
export function oneLine(text: string): string {
  const start = text.slice(0, MAX_SHOWN);
  const value = start === text ? parseJson(text) : undefined;
  const line = value === undefined ? start.replace(/\s+/g, ' ') : JSON.stringify(value);
  if (line === '') return '(empty)';
  return line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}…` : line;
}

/** A JSON value as a tree that can be folded. */
export function jsonView(value: unknown): HTMLElement {
  return element('div', { class: 'json' }, ...node(value, 0, []));
}

function countOf(count: number, isList: boolean): string {
  if (count === 1) return isList ? '1 entry' : '1 member';
  return `${count} ${isList ? 'entries' : 'members'}`;
}

function countNodes(value: unknown): number {
  let count = 0;
  const open = [value];
  while (open.length > 0 && count <= MAX_NODES) {
    const next = open.pop();
    if (typeof next === 'object' && next !== null) open.push(...Object.values(next));
    count += 1;
  }
  return count;
}

/** @param label text before the value */
function node(
  value: unknown,
  level: number,
  label: readonly (Node | string)[],
): readonly (Node | string)[] {
  if (typeof value !== 'object' || value === null) {
    const kind = value === null ? 'null' : typeof value;
    const text = JSON.stringify(value) ?? 'undefined';
    return [...label, element('span', { class: `json-${kind}` }, text)];
  }
  const isList = Array.isArray(value);
  const members = Object.entries(value);
  if (members.length === 0) return [...label, isList ? '[]' : '{}'];
  const count = element('span', { class: 'muted' }, countOf(members.length, isList));
  const folded = element(
    'details',
    level < OPEN_LEVELS ? { open: '' } : {},
    element('summary', {}, ...label, isList ? '[…] ' : '{…} ', count),
  );
  const list = element('ul');
  for (const [name, member] of members) {
    const written = isList ? name : JSON.stringify(name);
    const its = [element('span', { class: 'json-name' }, written), ': '];
    list.append(element('li', {}, ...node(member, level + 1, its)));
  }
  folded.append(list);
  return [folded];
}

import { compilePattern } from './linear-regexp.ts';

/** What `*` stands for. `edges`: any text, at the beginning and end of the pattern; elsewhere itself. `any`: any text, wherever it stands. */
export type WildcardKind = 'edges' | 'any';

/** Whether texts, which clients may have chosen, are like a pattern: in linear time. */
export function compileWildcard(pattern: string, kind: WildcardKind): (text: string) => boolean {
  if (kind === 'edges' || !pattern.slice(1, -1).includes('*')) return atEdges(pattern);
  const source = pattern.split('*').map(escaped).join('(?s:.*)');
  const compiled = compilePattern(`^${source}$`);
  return (text) => compiled.test(text);
}

function atEdges(pattern: string): (text: string) => boolean {
  if (pattern === '*') return () => true;
  const isOpen = pattern.startsWith('*');
  const text = pattern.slice(isOpen ? 1 : 0, pattern.endsWith('*') ? -1 : undefined);
  if (isOpen && pattern.endsWith('*')) return (whole) => whole.includes(text);
  if (isOpen) return (whole) => whole.endsWith(text);
  return pattern.endsWith('*') ? (whole) => whole.startsWith(text) : (whole) => whole === text;
}

function escaped(text: string): string {
  return text.replace(/[\\^$.|?+()[\]{}]/g, '\\$&');
}

import { compilePattern } from './linear-regexp.ts';

/**
 * What `*` stands for. `edges`: any text, at the beginning and end of the pattern; elsewhere itself.
 * `any`: any text, wherever it stands. `path`: any text at the edges, elsewhere any without a slash.
 * `file`: any text without a slash, and `?` one such character.
 */
export type WildcardKind = 'edges' | 'any' | 'path' | 'file';

const ANY = '(?s:.*)';
const IN_SEGMENT = '[^/]*';

/** Whether texts, which clients may have chosen, are like a pattern: in linear time. */
export function compileWildcard(pattern: string, kind: WildcardKind): (text: string) => boolean {
  const isPlain = !pattern.slice(1, -1).includes('*');
  if (kind === 'edges' || (isPlain && kind !== 'file')) return atEdges(pattern);
  const parts = pattern.split('*').map((part) => literal(part, kind));
  const inner = kind === 'any' ? ANY : IN_SEGMENT;
  const source = parts.reduce((sofar, part, index) => {
    const isEdge = (index === 1 && parts[0] === '') || (index === parts.length - 1 && part === '');
    return sofar + (isEdge && kind === 'path' ? ANY : inner) + part;
  });
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

function literal(text: string, kind: WildcardKind): string {
  const escaped = text.replace(/[\\^$.|+()[\]{}]/g, '\\$&');
  return escaped.replaceAll('?', kind === 'file' ? '[^/]' : '\\?');
}

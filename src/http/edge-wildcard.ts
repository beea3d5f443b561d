/** A text with `*` at its beginning or end, where it stands for any text; `*` alone for all. */
export function edgeWildcard(pattern: string): (text: string) => boolean {
  if (pattern === '*') return () => true;
  const open = pattern.startsWith('*');
  const literal = pattern.slice(open ? 1 : 0, pattern.endsWith('*') ? -1 : undefined);
  if (open && pattern.endsWith('*')) return (text) => text.includes(literal);
  if (open) return (text) => text.endsWith(literal);
  return pattern.endsWith('*') ? (text) => text.startsWith(literal) : (text) => text === literal;
}

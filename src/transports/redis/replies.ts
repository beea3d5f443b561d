/** The elements of a reply that is a list; none where it is something else. */
export function listOf(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : [];
}

export function textOf(reply: unknown): string | null {
  return typeof reply === 'string' ? reply : null;
}

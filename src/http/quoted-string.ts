/** A quoted-string (RFC 9110 §5.6.4). Characters beyond ASCII are left for the field's encoding. */
export function quotedString(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

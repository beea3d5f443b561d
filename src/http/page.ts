import { createHash } from 'node:crypto';
import { DESIGN_CSS } from './design.ts';

/** As it goes into a page: without the room that is for people. */
const STYLE = DESIGN_CSS.replace(/\s*\n\s*/g, '').replace(/ ?([{};]) ?/g, '$1');

/** `Content-Security-Policy` of a {@link page}: one style, no script, nothing from elsewhere. */
export const PAGE_POLICY = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'`;

/**
 * A whole page in one file.
 *
 * @param title text
 * @param main HTML
 */
export function page(title: string, main: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
<main>
${main}</main>
</html>
`;
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

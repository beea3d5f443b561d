// Errors, listings and the debugger share one design. A page is one file, and its policy names its
// style by hash. A client that accepts `text/html` gets an error as a page, any other client as
// text.

import { hash } from 'node:crypto';

/**
 * The design of all pages that hubgate creates: type, space, colour, light and dark. A document without
 * classes already looks right. `examples/design.css` is a copy of it.
 */
export const DESIGN_CSS = `:root {
  color-scheme: light dark;
  --page: #ffffff; --surface: #f4f6f8; --text: #1b2027; --muted: #56606b; --line: #ccd3da;
  --control: #7b8792; --accent: #0a58a8; --on-accent: #ffffff;
  --good: #17682f; --warn: #7d4d00; --bad: #b0241c;
  --small: 0.875rem; --large: 1.1875rem; --title: 1.625rem;
  --gap-s: 0.375rem; --gap: 0.75rem; --gap-l: 1.5rem; --round: 0.5rem;
  --sans: system-ui, sans-serif; --mono: ui-monospace, 'Cascadia Mono', Menlo, Consolas, monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161b; --surface: #1b2128; --text: #e5e9ee; --muted: #9da9b5; --line: #343d47;
    --control: #73808d; --accent: #7db9ff; --on-accent: #0b1b2d;
    --good: #74d591; --warn: #efb45c; --bad: #ff958c;
  }
}
*, ::before, ::after { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 1rem/1.5 var(--sans); overflow-wrap: anywhere; }
main { max-width: 60rem; margin: 0 auto; padding: var(--gap-l) var(--gap); }
main.centred { max-width: 32rem; min-height: 100vh; display: grid; align-content: center; }
.centred .card { padding: var(--gap-l); } .centred .card > :last-child { margin-bottom: 0; }
h1 > img { width: 1.75rem; height: 1.75rem; margin-right: var(--gap-s); vertical-align: -0.3rem; }
h1 { font-size: var(--title); line-height: 1.2; margin: 0 0 var(--gap); }
h2 { font-size: var(--large); line-height: 1.3; margin: 0 0 var(--gap); }
h3 { font-size: 1rem; margin: var(--gap) 0 var(--gap-s); }
p, ul, ol, pre, table { margin: 0 0 var(--gap); }
a { color: var(--accent); text-underline-offset: 0.15em; }
small, .small { font-size: var(--small); }
.muted { color: var(--muted); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
code, pre, kbd { font: var(--small)/1.5 var(--mono); }
pre { background: var(--page); border: 1px solid var(--line); border-radius: var(--round); padding: var(--gap); white-space: pre-wrap; }
kbd { border: 1px solid var(--control); border-radius: 0.25rem; padding: 0 0.35em; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: var(--round); padding: var(--gap); }
.empty { border: 1px dashed var(--control); border-radius: var(--round); padding: var(--gap-l); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: var(--gap-s) var(--gap) var(--gap-s) 0; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-size: var(--small); font-weight: 600; white-space: nowrap; }
tbody tr:hover { background: var(--surface); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.moment { font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 36rem) { .moment { display: none; } }
label { display: block; font-size: var(--small); font-weight: 600; margin: 0 0 var(--gap); }
label.inline { display: inline-flex; gap: var(--gap-s); align-items: center; }
input, textarea, select, button { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--control); border-radius: var(--round); padding: 0.375rem 0.625rem; min-height: 2.5rem; }
label > small { display: block; margin-top: 0.25rem; font-weight: 400; color: var(--muted); }
label > input, label > textarea { display: block; width: 100%; margin-top: var(--gap-s); font-weight: 400; }
textarea { resize: vertical; }
input[type='checkbox'] { min-height: 0; width: 1.125rem; height: 1.125rem; margin: 0; accent-color: var(--accent); }
::placeholder { color: var(--muted); opacity: 1; }
button { cursor: pointer; font-weight: 600; }
a.button { display: inline-block; padding: 0.375rem 0.625rem; border-radius: var(--round); background: var(--accent); color: var(--on-accent); font-weight: 600; text-decoration: none; }
button:hover { border-color: var(--accent); }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button[aria-pressed='true'] { box-shadow: inset 0 0 0 2px var(--accent); }
button:disabled { color: var(--muted); cursor: default; border-color: var(--line); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
[hidden] { display: none !important; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { animation: none !important; transition: none !important; scroll-behavior: auto !important; }
}
`;

/** The mark of hubgate's own pages and examples, as an SVG file: a hub below a gate. */
export const MARK_SVG = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#0a58a8"/>
<path d="M8 26V15a8 8 0 0 1 16 0v11" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>
<circle cx="16" cy="16" r="3" fill="#fff"/>
<path d="M16 22v4" stroke="#fff" stroke-width="3" stroke-linecap="round"/>
</svg>
`;

/** The style in a page, without whitespace that only helps readers of the source. */
const STYLE = DESIGN_CSS.replace(/\s*\n\s*/g, '').replace(/ ?([{};]) ?/g, '$1');

/** `Content-Security-Policy` of a {@link page}: one style, no script, nothing from other hosts. */
export const PAGE_POLICY = `default-src 'none'; style-src 'sha256-${hash('sha256', STYLE, 'base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'`;

/**
 * A whole page in one file.
 *
 * @param title text
 * @param main HTML
 * @param layout `centred` in the middle of the window; otherwise from the top
 */
export function page(title: string, main: string, layout: 'centred' | '' = ''): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
<main${layout === '' ? '' : ` class="${layout}"`}>
${main}</main>
</html>
`;
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

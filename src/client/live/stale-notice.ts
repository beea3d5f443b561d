/** The style has no specificity, so that any rule of the page wins. */
const STYLE =
  ':where(#hub-stale){position:fixed;inset:auto 1em 1em auto;z-index:9999;padding:.5em 1em;border:1px solid;border-radius:.5em;background:Canvas;color:CanvasText;font:14px sans-serif}';

let isShown = false;

/**
 * Says quietly that the page is no longer what the server sends, and offers to load it. The page can
 * set the text by `<meta name="hub-stale" content="…">`, and the style by `#hub-stale`; the Hubfile can set both
 * for all pages. Text is shown as text, and declarations can only be those of this element.
 */
export function showNotice(ofSite?: string, style = ''): void {
  if (isShown) return;
  isShown = true;
  const text = document.querySelector<HTMLMetaElement>('meta[name=hub-stale]')?.content;
  const notice = document.createElement('button');
  notice.id = 'hub-stale';
  notice.type = 'button';
  notice.textContent = text ?? ofSite ?? 'This page has changed. Load it again.';
  notice.style.cssText = style;
  notice.setAttribute('aria-live', 'polite');
  notice.onclick = () => location.reload();
  // A policy that forbids inline styles lets this one be.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets.push(sheet);
  document.body.append(notice);
}

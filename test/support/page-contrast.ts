import type { Page } from 'playwright-core';

/** Texts of a page whose contrast is below 4.5 (WCAG 2.2 §1.4.3), as a browser computes their colours. */
export function poorContrast(page: Page): Promise<readonly string[]> {
  return page.evaluate(`(() => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = (colour) => {
      const [r, g, b] = numbers(colour).slice(0, 3).map((part) =>
        part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (one) => {
      for (let at = one; at !== null; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (numbers(colour)[3] !== 0) return colour;
      }
      return 'rgb(255, 255, 255)';
    };
    const poor = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const { parentElement: its, data } = texts.currentNode;
      if (data.trim() === '' || !its.checkVisibility() || its.matches(':disabled')) continue;
      const [dark, light] = [luminance(getComputedStyle(its).color), luminance(ground(its))].sort((a, b) => a - b);
      const ratio = (light + 0.05) / (dark + 0.05);
      if (ratio < 4.5) poor.push(data.trim().slice(0, 40) + ': ' + ratio.toFixed(2));
    }
    return poor;
  })()`);
}

import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { DESIGN_CSS, MARK_SVG } from '../../../src/http/page.ts';

const COPY = new URL('../../../examples/design.css', import.meta.url);
const HEADER = `/* A copy of src/http/page.ts: UPDATE_GOLDEN=1 npm test -- test/unit/http/design.test.ts */\n`;

/** Custom properties of both schemes: the dark one changes some of the light one's. */
function schemes(): Record<'light' | 'dark', ReadonlyMap<string, string>> {
  const [light = '', dark = ''] = DESIGN_CSS.split('@media (prefers-color-scheme: dark)');
  const colours = (css: string): [string, string][] =>
    [...css.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name = '', value = '']) => [
      name,
      value,
    ]);
  return {
    light: new Map(colours(light)),
    dark: new Map([...colours(light), ...colours(dark)]),
  };
}

/** WCAG 2.2, relative luminance. */
function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

const TEXT = ['text', 'muted', 'accent', 'good', 'warn', 'bad'];

describe('the shared page design', () => {
  for (const [scheme, colours] of Object.entries(schemes())) {
    const ratio = (one: string, other: string): number =>
      contrast(colours.get(one) ?? '', colours.get(other) ?? '');
    it(`has a text contrast of 4.5 or more, ${scheme} (WCAG 2.2 §1.4.3)`, () => {
      const pairs = TEXT.flatMap((text) => [[text, 'page'] as const, [text, 'surface'] as const]);
      for (const [one, other] of [...pairs, ['on-accent', 'accent'] as const]) {
        const found = ratio(one, other);
        assert.ok(found >= 4.5, `${one} on ${other}: ${found}`);
      }
    });
    it(`has a contrast of 3 or more for control borders and focus rings, ${scheme} (WCAG 2.2 §1.4.11)`, () => {
      for (const [one, other] of [
        ['control', 'page'],
        ['control', 'surface'],
        ['accent', 'page'],
        ['accent', 'surface'],
      ] as const) {
        const found = ratio(one, other);
        assert.ok(found >= 3, `${one} on ${other}: ${found}`);
      }
    });
  }

  it('defines each color in both schemes, is small, and loads nothing from elsewhere', () => {
    const [, dark = ''] = DESIGN_CSS.split('@media (prefers-color-scheme: dark)');
    for (const name of schemes().light.keys()) assert.match(dark, new RegExp(`--${name}: #`));
    assert.ok(Buffer.byteLength(DESIGN_CSS) <= 6_144, String(Buffer.byteLength(DESIGN_CSS)));
    assert.doesNotMatch(DESIGN_CSS, /url\(|@import|@font-face/);
    assert.match(DESIGN_CSS, /prefers-reduced-motion/);
    assert.match(DESIGN_CSS, /:focus-visible/);
  });

  it('has an icon, which the examples use too', async () => {
    const copy = new URL('../../../examples/icon.svg', import.meta.url);
    if (process.env['UPDATE_GOLDEN'] === '1') await writeFile(copy, MARK_SVG);
    assert.equal(await readFile(copy, 'utf8'), MARK_SVG);
  });

  it('is identical to that of the examples', async () => {
    if (process.env['UPDATE_GOLDEN'] === '1') await writeFile(COPY, HEADER + DESIGN_CSS);
    assert.equal(await readFile(COPY, 'utf8'), HEADER + DESIGN_CSS);
  });
});

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './process.ts';

/** What stands between two fences of a document. */
export interface DocumentedBlock {
  readonly page: string;
  /** `page:line` of its first line. */
  readonly place: string;
  readonly language: string;
  /** Without the indentation of its fence. */
  readonly text: string;
}

/** The README and all of docs/, and what is deployed. */
export const PAGES: readonly string[] = [
  'README.md',
  'deploy/README.md',
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .sort((a, b) => (a < b ? -1 : 1))
    .map((name) => `docs/${name}`),
];

export function documentedBlocks(page: string): readonly DocumentedBlock[] {
  const markdown = readFileSync(join(root, page), 'utf8');
  return [...markdown.matchAll(/^( *)```([^\s`]*)\n([^]*?)^ *```$/gm)].map(
    ({ 1: indent = '', 2: language = '', 3: text = '', index }) => ({
      page,
      place: `${page}:${markdown.slice(0, index).split('\n').length + 1}`,
      language,
      text: text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    }),
  );
}

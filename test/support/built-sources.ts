import { readFile } from 'node:fs/promises';

/** The files that the bundler has put into a file of dist/, as its map names them; none for others. */
export async function sourcesOf(file: string): Promise<readonly string[]> {
  let map: string;
  try {
    map = await readFile(`${file}.map`, 'utf8');
  } catch {
    return [];
  }
  const { sources }: { sources: readonly string[] } = JSON.parse(map);
  return sources;
}

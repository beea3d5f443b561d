import type { HeaderList } from '../http/header-list.ts';

/*
 * A page with a script in it is another than the app's, so it has another validator: a weak one, made
 * of the app's own and the script's version. When a client asks with it the app gets its own back.
 */

const TAG = /(?:W\/)?"[^"]*"/g;
const MARKED = /^W\/"(.*)-live([sw])\.([0-9a-f]{8})"$/s;

/** The validator of a page with the script of this version in it. */
export function markedTag(tag: string, version: string): string {
  const match = /^(W\/)?"([^"]*)"$/.exec(tag);
  if (match === null) return tag;
  const [, weak, opaque = ''] = match;
  return `W/"${opaque}-live${weak === undefined ? 's' : 'w'}.${version}"`;
}

/**
 * Asks the app by its own validators; those of a page with another script mean nothing any more.
 * Says whether the client asked by one of ours.
 */
export function restoreTags(headers: HeaderList, version: string): boolean {
  let found = false;
  for (const name of ['if-none-match', 'if-match']) {
    const value = headers.combined(name);
    if (value === undefined || !value.includes('-live')) continue;
    const tags = (value.match(TAG) ?? []).flatMap((tag) => {
      const match = MARKED.exec(tag);
      if (match === null) return [tag];
      const [, opaque = '', strength, madeBy] = match;
      if (madeBy !== version) return [];
      found = true;
      return [strength === 's' ? `"${opaque}"` : `W/"${opaque}"`];
    });
    if (tags.length > 0) headers.set(name, tags.join(', '));
    else headers.delete(name);
  }
  // Part of the app's page is no part of this one.
  if (headers.get('if-range')?.includes('-live') === true) {
    headers.delete('if-range');
    headers.delete('range');
  }
  return found;
}

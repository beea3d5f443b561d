import { isIP } from 'node:net';
import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { hasRequestPlaceholder } from './request-upstreams.ts';

const UPSTREAM =
  /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[^\]]*\]|\{(?:env|file)\.[^{}]+\}|[^:/[\]{}]*)(?::([\d-]+))?(\/.*)?$/i;
const HOST = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?$/;
const MAX_RANGE = 1000;

/** The options of the transport that determine the scheme of the upstreams. */
export interface TransportWords {
  readonly tls: boolean;
  readonly h2c: boolean;
}

/**
 * Upstreams as absolute origins: `host:port`, `http://…`, `https://…`, `unix//path`, and a range of ports
 * such as `host:8001-8003`. All have the same scheme; a Unix socket uses plain HTTP. `h2c://` and
 * `unix+h2c//path`, or `versions h2c`, mean HTTP/2 without TLS.
 */
export function upstreamsOf(
  to: readonly { readonly cursor: Cursor; readonly words: readonly Word[] }[],
  { tls, h2c }: TransportWords,
): readonly string[] {
  const found = to.flatMap(({ cursor, words }) =>
    words.map((word) => ({ cursor, word, origins: originsOf(cursor, word, { tls, h2c }) })),
  );
  const [first] = found;
  for (const { cursor, word, origins } of found) {
    if (first === undefined || schemeOf(origins) === schemeOf(first.origins)) continue;
    const [own, others] = [schemeOf(origins), schemeOf(first.origins)];
    const message = `${cursor.quote(word)} uses ${own}, but the upstreams before it use ${others}`;
    const hint = 'use a separate reverse_proxy for each scheme';
    cursor.fail(word.span, 'mixed-schemes', message, hint);
  }
  const upstreams = found.flatMap(({ origins }) => origins);
  // A problem can point at a single word. Of several, it is unknown which one it will be about.
  const [only] = found.length === 1 ? found : [];
  if (only !== undefined) only.cursor.origins.mark(upstreams, only.word.span);
  return upstreams;
}

function schemeOf(origins: readonly string[]): string | undefined {
  const scheme = origins[0]?.split(':', 1)[0];
  return scheme === 'unix' ? 'http' : scheme?.replace('unix+', '');
}

function originsOf(cursor: Cursor, word: Word, { tls, h2c }: TransportWords): readonly string[] {
  // What becomes of it is looked at for each request.
  if (hasRequestPlaceholder(word.text)) {
    const [, written, address = word.text] = /^(https?|h2c):\/\/(.*)$/s.exec(word.text) ?? [];
    return [`${written ?? (tls ? 'https' : h2c ? 'h2c' : 'http')}://${address}`];
  }
  const [, by = '', unix] = /^unix(\+h2c)?\/(\/.+)$/.exec(word.text) ?? [];
  if (unix !== undefined) return [`unix${h2c ? '+h2c' : by}:${unix}`];
  if (/^\d+$/.test(word.text)) {
    const message = `${cursor.quote(word)} has a port but no host`;
    cursor.fail(word.span, 'bad-upstream', message, `write localhost:${word.text}`);
  }
  const match = UPSTREAM.exec(word.text);
  if (match === null) return bad(cursor, word);
  const [, written, hostText = '', portText, path] = match;
  if (path !== undefined) {
    const origin = word.text.slice(0, -path.length);
    if (path.includes('*')) {
      const message = `${cursor.quote(word)} is not a valid upstream address; if it is a matcher, its path must begin with /`;
      cursor.fail(word.span, 'bad-upstream', message, `write ${cursor.name} /${word.text} …`);
    }
    if (hostText === 'unix' && written === undefined) {
      const message = 'the socket of an upstream needs an absolute path';
      cursor.fail(word.span, 'bad-upstream', message, `write unix//${path.slice(1)}`);
    }
    const hint =
      path === '/'
        ? `write ${origin}`
        : `use ${cursor.name} ${origin} and change the path with rewrite or uri`;
    cursor.fail(word.span, 'bad-upstream', 'an upstream has no path', hint);
  }
  const meant = written?.toLowerCase() ?? (tls || (portText === '443' && !h2c) ? 'https' : 'http');
  const scheme = meant === 'http' && h2c ? 'h2c' : meant;
  if (scheme !== 'http' && scheme !== 'https' && scheme !== 'h2c') {
    const message = `upstreams by ${scheme}:// are not supported by hubgate`;
    cursor.fail(word.span, 'bad-upstream', message, 'use http://, https:// or h2c://');
  }
  if (tls && h2c) {
    const message = 'the transport has tls options, but h2c does not use TLS';
    cursor.fail(word.span, 'bad-upstream', message, 'write versions 2');
  }
  if (tls && scheme !== 'https') {
    const message = `this upstream is ${scheme}://, but its transport has tls options`;
    cursor.fail(word.span, 'bad-upstream', message, 'write https://, or remove the tls options');
  }
  if (h2c && scheme === 'https') {
    const message = 'this upstream is https://, but its transport is h2c, which does not use TLS';
    cursor.fail(word.span, 'bad-upstream', message, 'write versions 2');
  }
  const host = hostOf(cursor, word, hostText, portText);
  // `{env.APP}` may contain its port.
  if (host.startsWith('{') && portText === undefined) return [`${scheme}://${host}`];
  return portsOf(cursor, word, portText, scheme).map((port) => `${scheme}://${host}:${port}`);
}

function hostOf(cursor: Cursor, word: Word, text: string, port: string | undefined): string {
  if (text === '' && port !== undefined) return 'localhost';
  if (text.startsWith('{')) return text;
  if (text.startsWith('[')) return isIP(text.slice(1, -1)) === 6 ? text : bad(cursor, word);
  return HOST.test(text) ? text.toLowerCase() : bad(cursor, word);
}

function portsOf(
  cursor: Cursor,
  word: Word,
  text: string | undefined,
  scheme: string,
): readonly number[] {
  if (text === undefined) return [scheme === 'https' ? 443 : 80];
  const [, from, to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const first = Number(from);
  const last = Number(to);
  if (!(first >= 1 && last >= first && last <= 65_535)) return bad(cursor, word);
  if (last - first >= MAX_RANGE) {
    cursor.fail(word.span, 'bad-upstream', `a port range has at most ${MAX_RANGE} ports`);
  }
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

function bad(cursor: Cursor, word: Word): never {
  const message = `${cursor.quote(word)} is not a valid upstream address`;
  const { source, start, end } = word.span;
  // An empty variable leaves nothing in the word.
  const hint = source.raw.slice(start, end + 2).includes('{$')
    ? 'part of it comes from a variable: is it set? Write a default as {$NAME:value}'
    : word.text.includes('{')
      ? 'a placeholder of the request stands for the host, the port or both'
      : 'for example localhost:3000, https://app.internal or unix//run/app.sock';
  return cursor.fail(word.span, 'bad-upstream', message, hint);
}

import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import type { SiteAddress } from '../config/config.ts';
import type { Word } from './parser.ts';
import { type Span, LineProblem } from './place.ts';

/** Ports that decide whether an address without a scheme means HTTP. */
export interface SchemePorts {
  readonly httpPort: number;
  readonly httpsPort: number;
}

interface Schemes extends SchemePorts {
  /** Whether the site has TLS settings: an address that is only a port then means HTTPS. */
  readonly secure: boolean;
}

const ADDRESS = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[^\]]*\]|[^:/[\]]*)(?::(\d*))?(\/(?!\/).*)?$/i;
const HOST =
  /^(?:\*\.)?(?:[\p{L}\p{N}_](?:[\p{L}\p{N}\p{M}_-]*[\p{L}\p{N}\p{M}_])?\.)*[\p{L}\p{N}_](?:[\p{L}\p{N}\p{M}_-]*[\p{L}\p{N}\p{M}_])?\.?$/u;
/** Such a host is checked when its value is known. */
const PLACEHOLDER_HOST = /^(?:\*\.)?(?:[a-z0-9_-]+\.)*\{(?:env|file)\.[^{}]+\}(?:\.[a-z0-9_-]+)*$/;
const MAX_HOST = 253;

/** Splits the head of a site at spaces and commas. */
export function addressWords(words: readonly Word[]): Word[] {
  const addresses: Word[] = [];
  let comma: Word | null = null;
  for (const word of words) {
    const text = word.text.endsWith(',') ? word.text.slice(0, -1) : word.text;
    if (text.includes(',')) {
      throw fault(word.span, `"${word.text}" contains a comma`, 'put a space after the comma');
    }
    const span = { ...word.span, end: word.span.end - (word.text.length - text.length) };
    if (text !== '') addresses.push({ ...word, text, span });
    else if (addresses.length === 0 || comma !== null) {
      throw fault(word.span, 'an address is missing here');
    }
    comma = word.text.endsWith(',') ? word : null;
  }
  if (comma !== null) {
    throw fault(comma.span, 'expected another address after the comma', 'remove the comma');
  }
  return addresses;
}

/** `[scheme://]host[:port]`, `:port`, `*.example.com`, IPv4, `[IPv6]`. */
export function parseAddress(word: Word, ports: Schemes): SiteAddress {
  if (PLACEHOLDER_HOST.test(word.text)) return { scheme: 'https', host: word.text, port: null };
  const match = ADDRESS.exec(word.text);
  if (match === null) {
    throw fault(
      word.span,
      `"${shorten(word.text)}" is not a site address`,
      'for example example.com, localhost:8443, :8080 or http://example.com',
    );
  }
  const [, schemeText, hostText = '', portText, path] = match;
  if (path !== undefined && path !== '/') {
    const site = word.text.slice(0, -path.length);
    const hint =
      site === ''
        ? 'a site begins with its address, such as example.com or :8080'
        : `put the directives into the site ${site}, in handle ${path} { … }`;
    throw fault(word.span, 'a site address has no path', hint);
  }
  const scheme = schemeText?.toLowerCase() ?? null;
  if (scheme !== null && scheme !== 'http' && scheme !== 'https') {
    throw fault(word.span, `a site uses http:// or https://, not ${scheme}://`);
  }
  const port = parsePort(portText, word.span);
  if (hostText === '' && port === null && scheme === null) {
    throw fault(word.span, 'an address needs a host or a port');
  }
  const host = parseHost(hostText, word.span);
  const address = { scheme: scheme ?? impliedScheme(host, port, ports), host, port };
  checkPort(address, scheme, word.span);
  return address;
}

function impliedScheme(host: string, port: number | null, ports: Schemes): 'http' | 'https' {
  if (port === null) return 'https';
  if (port === 443 || port === ports.httpsPort) return 'https';
  if (port === 80 || port === ports.httpPort) return 'http';
  return host === '' && !ports.secure ? 'http' : 'https';
}

function checkPort(address: SiteAddress, scheme: string | null, span: Span): void {
  const against =
    (scheme === 'http' && address.port === 443) || (scheme === 'https' && address.port === 80);
  if (!against) return;
  throw fault(
    span,
    `port ${address.port} is for ${scheme === 'http' ? 'HTTPS' : 'HTTP'}`,
    `write ${scheme === 'http' ? 'https' : 'http'}://, or choose another port`,
  );
}

function parsePort(text: string | undefined, span: Span): number | null {
  if (text === undefined) return null;
  const port = Number(text);
  if (text !== '' && port >= 1 && port <= 65_535) return port;
  throw fault(span, 'a port is a number from 1 to 65535');
}

function parseHost(text: string, span: Span): string {
  if (text === '' || PLACEHOLDER_HOST.test(text)) return text;
  if (text.startsWith('[')) {
    const address = text.slice(1, -1);
    if (isIP(address) === 6) return address.toLowerCase();
    throw fault(span, `${text} is not an IPv6 address`);
  }
  if (text.length > MAX_HOST || !HOST.test(text) || /^[\d.]+$/.test(text) !== (isIP(text) === 4)) {
    throw fault(
      span,
      `"${shorten(text)}" is not a host name`,
      text === '*' ? 'for any host write only the port, such as :443' : undefined,
    );
  }
  const wildcard = text.startsWith('*.') ? '*.' : '';
  const ascii = domainToASCII(text.slice(wildcard.length).replace(/\.$/, '').toLowerCase());
  if (ascii === '' || ascii.length > MAX_HOST)
    throw fault(span, `"${shorten(text)}" is not a host name`);
  return wildcard + ascii;
}

function shorten(text: string): string {
  return (text.length > 60 ? `${text.slice(0, 60)}…` : text).replaceAll(/\p{Cc}/gu, '·');
}

function fault(span: Span, message: string, hint?: string): LineProblem {
  return new LineProblem(span, 'bad-address', message, hint);
}

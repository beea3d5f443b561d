import { about } from '../http/about.ts';
import type { Exchange, Handler, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { recode, type Recoding } from '../http/representation.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { isDestinationOfPages } from './destination.ts';
import { askPolicies, metaPolicy } from './content-security-policy.ts';
import { canDecode, injecting, type MakeScript } from './injection.ts';
import { markedTag, restoreTags } from './page-tag.ts';
import { requestUrl } from './request-url.ts';
import { requireUrl } from '../kernel/parse-url.ts';

export interface LivePagesOptions {
  readonly hub: AnnouncedHub;
  /** Whether pages that answer a request are to be live. */
  readonly concerns: (exchange: Exchange) => boolean;
  /** Eight hexadecimal digits that change with the script. */
  readonly version: string;
}

/** In these "<" is not always a byte of its own; documents in them are left alone. */
const OTHER_THAN_ASCII = /^(?:utf-?16|utf-?32|ucs-?[24]|iso-2022|hz|utf-7|unicode|csunicode)/i;

/** Marks exchanges that this has been asked about. */
const SEEN = 'hub.live';

/** Different policies that the log has told of. */
const MAX_TOLD = 100;

/**
 * Adds the script to the app's documents that makes them follow their changes. It stands next to
 * what answers, so that it sees what the app sent, before anything else encodes it.
 */
export function createLivePages({ hub, concerns, version }: LivePagesOptions): Handler {
  const told = new Set<string>();

  const scriptFor =
    (exchange: Exchange, { headers }: ResponseHead): MakeScript =>
    (metas) => {
      const page = requestUrl(exchange);
      if (page === null) return null;
      const question = {
        origin: page.origin,
        script: requireUrl(`${hub.target}/live.js`, page.href),
        hub: requireUrl(hub.target, page.href),
      };
      const policies = [
        ...headers.getAll('content-security-policy'),
        ...metas.flatMap((meta) => metaPolicy(meta) ?? []),
      ];
      const answer = askPolicies(policies, question);
      if (answer.kind === 'allowed') return scriptElement(hub, version, page, answer);
      const { allow } = answer;
      if (told.size < MAX_TOLD && !told.has(allow)) {
        told.add(allow);
        const fields = about(exchange, { allow });
        exchange.log.warn('A page is not live: its Content-Security-Policy forbids it', fields);
      }
      return null;
    };

  return (exchange, next) => {
    const { method, headers, upgrade } = exchange;
    const isRead = method === 'GET' || method === 'HEAD';
    if (!isRead || upgrade !== null || !isDestinationOfPages(headers) || !concerns(exchange)) {
      return next();
    }
    // One response may pass several that could answer.
    if (exchange.variables.has(SEEN)) return next();
    exchange.variables.set(SEEN, '');
    const isOurs = restoreTags(headers, version);
    exchange.onHead((head) => {
      if (head.source !== 'upstream') return undefined;
      const recoding: Recoding = {
        vary: [],
        concerns: (fields) => isDocument(fields) && isReadable(exchange, fields),
        // The policy is known once all have had their say on the head.
        begin: (fields) => injecting(codingOf(fields), () => scriptFor(exchange, head)),
        retag: (etag) => markedTag(etag, version),
      };
      return recode(exchange, head, recoding, isOurs);
    });
    return next();
  };
}

function isDocument(headers: HeaderList): boolean {
  const [type = '', ...parameters] = (headers.get('content-type') ?? '').split(';');
  if (type.trim().toLowerCase() !== 'text/html') return false;
  const charset = parameters
    .map((one) => /^\s*charset\s*=\s*"?([^"\s]*)/i.exec(one)?.[1])
    .find(Boolean);
  if (charset !== undefined && OTHER_THAN_ASCII.test(charset)) return false;
  // RFC 9110 §7.7: who forbids to transform the content means this too.
  if (/no-transform/i.test(headers.combined('cache-control') ?? '')) return false;
  return !/^\s*attachment/i.test(headers.get('content-disposition') ?? '');
}

function codingOf(headers: HeaderList): string {
  const coding = (headers.combined('content-encoding') ?? '').trim().toLowerCase();
  return coding === '' ? 'identity' : coding;
}

function isReadable({ log }: Exchange, headers: HeaderList): boolean {
  const encoding = codingOf(headers);
  const length = headers.get('content-length');
  if (canDecode(encoding, length === undefined ? null : Number(length))) return true;
  log.debug('A page is not live: its encoding is unknown here, or it is too long', { encoding });
  return false;
}

function scriptElement(
  { target, relation }: AnnouncedHub,
  version: string,
  page: URL,
  { nonce, trusted }: { readonly nonce: string | null; readonly trusted: boolean },
): Buffer {
  const attributes = [
    ['src', `${target}/live.js?v=${version}`],
    ['data-hub', target],
    // Behind another proxy a page may not know by which name the gateway was asked.
    ['data-origin', page.origin],
    ...(relation === 'hub' ? [] : [['data-relation', relation]]),
    ...(trusted ? [['data-trusted', '']] : []),
    ...(nonce === null ? [] : [['nonce', nonce]]),
  ];
  const text = attributes.map(([name, value = '']) => ` ${name}="${escaped(value)}"`).join('');
  return Buffer.from(`<script${text}></script>`, 'latin1');
}

function escaped(value: string): string {
  return value.replace(/[&"<>]/g, (character) => `&#${character.charCodeAt(0)};`);
}

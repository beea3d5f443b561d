// The script is injected next to the handler that responds, before any other handler encodes the body. Its
// tag is the same in every page, so that pages keep their validators.

import { hash } from 'node:crypto';
import {
  about,
  type Dependence,
  type Exchange,
  type Handler,
  type RequestHook,
  type ResponseHead,
} from '../http/exchange.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { recode, type Recoding } from '../http/representation.ts';
import type { AnnouncedHub, AnnouncementCounts } from './announced-hub.ts';
import { requestUrl } from '../http/request-path.ts';
import { askPolicies, metaPolicy } from './content-security-policy.ts';
import { canDecode, injecting, type MakeScript } from './injection.ts';
import { withoutParameters } from '../client/page-topics.ts';
import { parseUrl, requireUrl } from '../kernel/parse.ts';
import { quotedString } from '../http/field-values.ts';
import { linkedPages } from './link.ts';
import { answer, answerError } from '../http/answer.ts';
import { REFETCH } from './live-refetches.ts';
import { clientNetwork, type RateZone, verdictOf } from '../http/rate-limits.ts';
import { withoutSecretParts } from '../kernel/secret.ts';

export interface LivePagesOptions {
  readonly hub: AnnouncedHub;
  /** Whether pages in the response to a request are to be live. `dependsOn` is told by what this is decided. */
  readonly concerns: (exchange: Exchange, dependsOn: (on: Dependence) => void) => boolean;
  /** Eight hexadecimal digits that change with the script. */
  readonly version: string;
  /** Further attributes of the script's element, the same in every page. */
  readonly settings: readonly (readonly [name: string, value: string])[];
}

/** In these encodings, "<" is not always a separate byte; such documents stay unchanged. */
const OTHER_THAN_ASCII = /^(?:utf-?16|utf-?32|ucs-?[24]|iso-2022|hz|utf-7|unicode|csunicode)/i;

/**
 * Variable of a request whose page is to be live. Requests on its behalf have it too. A response may pass several
 * handlers that could have sent it, and the first one removes it.
 */
const LIVE = 'hub.live';
/**
 * Variable of a request with what decided whether its page is to be live. A cache is told behind it, because the
 * script is part of what it stores.
 */
const DECIDED_BY = 'hub.live.decided_by';

/** Most different policies that are logged. */
const MAX_WARNED = 100;

export interface LivePages {
  /** Decides for a request as it arrives, because matchers mean the path of the client and not a rewritten one. */
  readonly hook: RequestHook;
  /**
   * Adds the script. It is next to the handler that responds, so that it sees what the app sent, before anything
   * else encodes it.
   */
  readonly handle: Handler;
}

/** Adds to the app's documents the script that makes them follow their changes. */
export function createLivePages({ hub, concerns, version, settings }: LivePagesOptions): LivePages {
  // With other settings, the page has another validator.
  const tagVersion = settings.length === 0 ? version : digestOf(version, settings);
  const warned = new Set<string>();

  const scriptFor =
    (exchange: Exchange, { status, headers }: ResponseHead): MakeScript =>
    (elements) => {
      const page = requestUrl(exchange);
      if (page === null) return null;
      const question = {
        origin: page.origin,
        script: requireUrl(`${hub.target}/live.js`, page.href),
        hub: requireUrl(hub.target, page.href),
      };
      const policies = [
        ...headers.getAll('content-security-policy'),
        ...elements.flatMap((element) => metaPolicy(element) ?? []),
      ];
      const answer = askPolicies(policies, question);
      if (answer.kind === 'allowed') {
        const { protocol, href } = question.script;
        // Behind another proxy, the gateway may not know the name of the site, so only such a page needs it. It may not
        // know its scheme either: over http that is the one of the base.
        const own = protocol === 'https:' ? href : href.slice(protocol.length);
        const script = elements.some(isBaseOfOthers) ? own : `${hub.target}/live.js`;
        const further = [...settings, ...conditionsOf(page, answer)];
        return scriptElement(hub, `${script}?v=${version}`, further);
      }
      const { allow } = answer;
      // Others, such as the error page for a missing icon, do not matter to anybody.
      if (isShown(exchange, status) && warned.size < MAX_WARNED && !warned.has(allow)) {
        warned.add(allow);
        const fields = about(exchange, { allow });
        exchange.log.warn('A page is not live: its Content-Security-Policy forbids it', fields);
      }
      return null;
    };

  const hook: RequestHook = (exchange) => {
    if (exchange.upgrade !== null) return;
    const decidedBy: Dependence[] = [];
    if (concerns(exchange, (on) => decidedBy.push(on))) exchange.variables.set(LIVE, '');
    if (decidedBy.length > 0) exchange.variables.set(DECIDED_BY, JSON.stringify(decidedBy));
  };
  const handle: Handler = (exchange, next) => {
    const { method, headers, variables } = exchange;
    const isRead = method === 'GET' || method === 'HEAD';
    if (!isRead) return next();
    const isLive = variables.delete(LIVE);
    const isRefetch = variables.delete(REFETCH);
    if (!isLive && !variables.has(DECIDED_BY)) {
      // The URL alone excludes this page, to which a library has moved from a live one. Its GET may have effects, so the
      // app gets that of the visitor only.
      return isRefetch ? answer(exchange, 204, { 'cache-control': 'no-store' }) : next();
    }
    const isOurs = isLive && restoreTags(headers, tagVersion);
    exchange.onHead((head) => {
      if (head.source !== 'upstream') return undefined;
      // A cache that a 304 confirms has been told with the response that it stores.
      if (isDocument(head.headers)) noteDependence(exchange);
      if (!isLive) return undefined;
      if (head.status === 304 || isDocument(head.headers)) namePage(exchange, head.headers);
      const recoding: Recoding = {
        vary: [],
        concerns: (fields) => isDocument(fields) && isReadable(exchange, fields),
        // The policy is known after all transforms of the head.
        begin: (fields) =>
          injecting(codingOf(fields), exchange.clientAddress, () => scriptFor(exchange, head)),
        retag: (etag) => markedTag(etag, tagVersion),
      };
      return recode(exchange, head, recoding, isOurs);
    });
    return next();
  };
  return { hook, handle };
}

/** A page without the script depends on the same as a page with it. */
function noteDependence({ dependsOn, variables }: Exchange): void {
  const decidedBy = variables.get(DECIDED_BY);
  if (dependsOn === undefined || decidedBy === undefined) return;
  for (const on of JSON.parse(decidedBy) as Dependence[]) dependsOn(on);
}

/** Whether a visitor sees the page. Older browsers do not say what a request is for. */
function isShown({ headers }: Exchange, status: number): boolean {
  const destination = headers.get('sec-fetch-dest') ?? 'document';
  return status < 400 && ['document', 'iframe', 'frame', 'empty'].includes(destination);
}

function isDocument(headers: HeaderList): boolean {
  const [type = '', ...parameters] = (headers.get('content-type') ?? '').split(';');
  if (type.trim().toLowerCase() !== 'text/html') return false;
  const charset = parameters
    .map((one) => /^\s*charset\s*=\s*"?([^"\s]*)/i.exec(one)?.[1])
    .find(Boolean);
  if (charset !== undefined && OTHER_THAN_ASCII.test(charset)) return false;
  // RFC 9110 §7.7: no-transform also forbids this change.
  if (/no-transform/i.test(headers.combined('cache-control') ?? '')) return false;
  return !/^\s*attachment/i.test(headers.get('content-disposition') ?? '');
}

function codingOf(headers: HeaderList): string {
  const coding = (headers.combined('content-encoding') ?? '').trim().toLowerCase();
  return coding === '' ? 'identity' : coding;
}

function isReadable({ clientAddress, log }: Exchange, headers: HeaderList): boolean {
  const encoding = codingOf(headers);
  const length = headers.get('content-length');
  if (canDecode(encoding, length === undefined ? null : Number(length), clientAddress)) return true;
  const reason = 'its encoding is unknown, it is too long, or there is no memory to encode it';
  log.debug(`A page is not live: ${reason}`, { encoding });
  return false;
}

/** Most names of a page that its script gets, and their total length in characters. */
const MAX_NAMES = 8;
const MAX_NAMES_LENGTH = 2048;

/**
 * Passes the URLs with which the app's fields name the page to the page's script. A script cannot read these
 * fields, nor that of the hub (`hubTiming`).
 */
function namePage(exchange: Exchange, headers: HeaderList): void {
  const page = requestUrl(exchange);
  if (page === null) return;
  const location = parseUrl(fieldText(headers.get('content-location') ?? ''), page.href);
  const linked = linkedPages(headers).map((target) => parseUrl(target, page.href));
  const names = new Set<string>();
  for (const url of [...linked, location?.origin === page.origin ? location : null]) {
    if (url === null || !/^https?:$/.test(url.protocol) || names.size === MAX_NAMES) continue;
    url.hash = '';
    const name = withoutParameters(url.href);
    if (name !== withoutParameters(page.href)) names.add(name);
  }
  const text = [...names].join(' ');
  if (text === '' || text.length > MAX_NAMES_LENGTH) return;
  headers.append('Server-Timing', `hub-page;desc=${quotedString(text)}`);
}

/** Begins another origin, or may. Browsers ignore tabs and line breaks in URLs. */
const OTHER_ORIGIN = /\bhref\s*=[\s"']*(?![\s"'])(?:[\\/][\t\r\n]*[\\/]|[^"'> ]*[:&])/i;

/** Whether the relative URLs of a page may lead to another origin because of this element. */
function isBaseOfOthers(element: string): boolean {
  return /^base\b/i.test(element) && OTHER_ORIGIN.test(element);
}

function conditionsOf(
  page: URL,
  { nonce, trusted }: { readonly nonce: string | null; readonly trusted: boolean },
): (readonly [string, string])[] {
  return [
    // Behind another proxy, a page may not know the name with which the gateway was contacted.
    ['data-origin', page.origin],
    ...(trusted ? [['data-trusted', ''] as const] : []),
    ...(nonce === null ? [] : [['nonce', nonce] as const]),
  ];
}

function scriptElement(
  { target, relation }: AnnouncedHub,
  address: string,
  further: readonly (readonly [string, string])[],
): Buffer {
  const attributes = [
    ['src', address],
    ['data-hub', target],
    ...(relation === 'hub' ? [] : [['data-relation', relation]]),
    ...further,
  ];
  const text = attributes.map(([name, value = '']) => ` ${name}="${escaped(value)}"`).join('');
  return Buffer.from(`<script${text}></script>`, 'latin1');
}

/** As character references, so that it is the same in every encoding of a page. */
function escaped(value: string): string {
  return value.replace(/[&"<>]|[^\x20-\x7e]/gu, (character) => `&#${character.codePointAt(0)};`);
}

function digestOf(...values: readonly unknown[]): string {
  return hash('sha256', JSON.stringify(values), 'hex').slice(0, 8);
}

/*
 * A page with a script differs from the app's page, so it has a different validator: a weak one, derived from
 * the app's own and the script's version. When a client sends it back, the app gets its own validator.
 */

const TAG = /(?:W\/)?"[^"]*"/g;
const MARKED = /^W\/"(.*)-live([sw])\.([0-9a-f]{8})"$/s;

/** The validator of a page with this version of the script. */
function markedTag(tag: string, version: string): string {
  const match = /^(W\/)?"([^"]*)"$/.exec(tag);
  if (match === null) return tag;
  const [, weak, opaque = ''] = match;
  return `W/"${opaque}-live${weak === undefined ? 's' : 'w'}.${version}"`;
}

/**
 * Replaces the client's validators with the app's own; those of a page with another script are no longer
 * valid. Returns whether the client has sent one of this version.
 */
function restoreTags(headers: HeaderList, version: string): boolean {
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
  // A part of the app's page is not a part of this one.
  if (headers.get('if-range')?.includes('-live') === true) {
    headers.delete('if-range');
    headers.delete('range');
  }
  return found;
}

/** Why a live page differs from what the server sends: the words of its script, and their counters. */
const REASONS = {
  visitor: 'withheldForVisitor',
  script: 'withheldForScript',
  gone: 'withheldGone',
} as const satisfies Record<string, keyof AnnouncementCounts>;

/** Reports of one client per minute; each page sends at most one for each reason. */
const REPORTS_PER_MINUTE = 60;
export const REPORT_WINDOW_MS = 60_000;
/** Characters of a page's path in the log. */
const MAX_PATH = 200;

export interface LiveReportsOptions {
  readonly hub: AnnouncedHub;
  readonly counts: RateZone;
}

/** The path to which the script of live pages sends its reports, on the page's own site. */
export function reportPath({ path }: Pick<AnnouncedHub, 'path'>): string {
  return `${path}/live-report`;
}

/**
 * Counts the pages with withheld changes: `POST HUB/live-report?withheld=visitor`. A report is one of three
 * words in the query. Its body is never read.
 */
export function createLiveReports({ hub, counts }: LiveReportsOptions): Handler {
  const path = reportPath(hub);
  return (exchange, next) => {
    const url = requestUrl(exchange);
    if (url === null || url.pathname !== path) return next();
    if (exchange.method !== 'POST') return answer(exchange, 405, { allow: 'POST' });
    const reason = url.searchParams.get('withheld') ?? '';
    const client = clientNetwork(exchange.clientAddress);
    const quota = { events: REPORTS_PER_MINUTE, windowMs: REPORT_WINDOW_MS };
    if (!isReason(reason)) return answerError(exchange, 400);
    if (!verdictOf(counts.counts(client), quota).allowed) return answerError(exchange, 429);
    counts.count(client);
    hub.announcements[REASONS[reason]] += 1;
    // Browsers name the page, to its own site only. Its query is not logged.
    const referrer = parseUrl(exchange.headers.get('referer') ?? '')?.pathname ?? '';
    const page = withoutSecretParts(referrer.slice(0, MAX_PATH), 'REDACTED');
    exchange.log.debug('A change is withheld from a live page', about(exchange, { reason, page }));
    return answer(exchange, 204, {});
  };
}

function isReason(text: string): text is keyof typeof REASONS {
  return Object.hasOwn(REASONS, text);
}

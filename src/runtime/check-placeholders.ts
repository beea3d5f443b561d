import { registry } from '../directives/registry.ts';
import type { SiteConfig } from '../config/config.ts';
import { everyRoute } from '../config/routes.ts';
import { type Report, warning } from '../config/problem.ts';
import { CHANGE_PLACEHOLDERS } from '../discovery/changes.ts';
import { Secret } from '../kernel/secret.ts';
import { verifiesClients } from '../config/sites.ts';
import {
  CERTIFICATE,
  isPlaceholder,
  looksLikePlaceholder,
  PLACEHOLDER,
  placeholderLike,
  shortName,
} from '../site/placeholder-names.ts';

/** Members in which braces have another meaning. */
const OTHER_LANGUAGES = new Set(['pattern', 'search']);

/** The beginning of a placeholder that is not closed before the next brace or the end. */
const UNCLOSED =
  /(?<!\\)\{(?:http\.|header\.|query\.|cookie\.|path\.|env\.|vars\.|re\.|host\b|uri\b|remote_host\b)[\w.-]*(?![\w.-]|[^{}]*\})/g;

/** Members that decide which requests a route applies to. */
const MATCHERS = new Set(['matcher', 'matchers']);

/**
 * Checks that everything that looks like a placeholder of the request is one. Other text in braces stays
 * unchanged, which would go unnoticed. In a matcher it is an error, because a guard would never match.
 */
export function checkPlaceholders(site: SiteConfig, report: Report): void {
  const { routes, errorRoutes, discovery } = site;
  const mapped = mappedNames(site);
  const everywhere = {
    report,
    isKnown: (name: string) => mapped.has(name) || isPlaceholder(name),
    isMatcher: false,
    hasCertificates: verifiesClients(site),
  };
  look([routes, errorRoutes], site, everywhere);
  if (discovery === null) return;
  // The names of an alias are its own.
  const { changes, aliases: _, ...others } = discovery;
  for (const part of Object.values(others)) look(part, discovery, everywhere);
  const isKnown = (name: string) => CHANGE_PLACEHOLDERS.has(name) || everywhere.isKnown(name);
  look(changes, discovery, { ...everywhere, isKnown });
}

interface Looking {
  readonly report: Report;
  readonly isKnown: (name: string) => boolean;
  readonly isMatcher: boolean;
  /** Whether the site verifies client certificates. */
  readonly hasCertificates: boolean;
}

/** The names that `map` sets are placeholders of the site. */
export function mappedNames({
  routes,
  errorRoutes,
}: Pick<SiteConfig, 'routes' | 'errorRoutes'>): ReadonlySet<string> {
  return new Set(
    everyRoute([...routes, ...errorRoutes], registry).flatMap(({ handler }) =>
      handler.kind === 'map' ? handler.destinations : [],
    ),
  );
}

/** @param about the part of the configuration that contains it and whose place is known */
function look(value: unknown, about: object, looking: Looking): void {
  if (typeof value === 'string') {
    for (const name of namesIn(value)) {
      if (isUnverified(name, looking)) {
        looking.report(about, noCertificate(name, looking.isMatcher));
        continue;
      }
      if (looking.isKnown(name)) continue;
      if (!(looking.isMatcher || looksLikePlaceholder(name) || isMisspelt(name))) continue;
      looking.report(about, unknownPlaceholder(name, looking.isMatcher));
    }
    for (const [beginning] of value.matchAll(UNCLOSED))
      looking.report(about, unclosedPlaceholder(beginning));
    return;
  }
  if (typeof value !== 'object' || value === null || value instanceof Secret) return;
  // For a list of texts, only the place of the whole list is known.
  const place = Array.isArray(value) ? about : value;
  for (const [name, member] of Object.entries(value)) {
    if (OTHER_LANGUAGES.has(name)) continue;
    look(member, place, MATCHERS.has(name) ? { ...looking, isMatcher: true } : looking);
  }
}

function isUnverified(name: string, { hasCertificates }: Looking): boolean {
  return !hasCertificates && shortName(name).startsWith(CERTIFICATE) && isPlaceholder(name);
}

/**
 * Braces around one short word may be text in another language, but hardly so if the word resembles the name
 * of a placeholder.
 */
function isMisspelt(name: string): boolean {
  return /^[a-z_]{3,}$/.test(name) && placeholderLike(name) !== undefined;
}

function unclosedPlaceholder(beginning: string) {
  const shown = beginning.slice(0, 80);
  const message = `${shown} is not closed, so it stays in the text as it is`;
  const hint = `write ${shown}}, or \\${shown} if the brace is meant`;
  return warning('unclosed-placeholder', message, hint);
}

function namesIn(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(PLACEHOLDER)].flatMap(([, name]) => name ?? []));
}

function noCertificate(name: string, isMatcher: boolean) {
  const shown = name.slice(0, 80);
  return {
    severity: isMatcher ? 'error' : 'warning',
    code: 'unverified-client-certificate',
    message: `this site verifies no client certificates, so {${shown}} is always empty`,
    hint: 'add tls { client_auth { mode require_and_verify; trust_pool file … } }, or verify_if_given',
  } as const;
}

function unknownPlaceholder(name: string, isMatcher: boolean) {
  const shown = name.slice(0, 80);
  const nearest = placeholderLike(shown);
  return {
    severity: isMatcher ? 'error' : 'warning',
    code: 'unknown-placeholder',
    message: isMatcher
      ? `{${shown}} is not a placeholder, so this matcher cannot match`
      : `{${shown}} is not a placeholder, so it stays in the text as it is`,
    hint:
      nearest === undefined
        ? `write \\{${shown}} if the braces are meant; docs/hubfile.md lists the placeholders`
        : `did you mean {${nearest}}? write \\{${shown}} if the braces are meant`,
  } as const;
}

import type { SiteConfig } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import type { Report } from '../config/problem.ts';
import { CHANGE_PLACEHOLDERS } from '../discovery/changes.ts';
import { Secret } from '../kernel/secret.ts';
import {
  isPlaceholder,
  looksLikePlaceholder,
  PLACEHOLDER,
  placeholdersLike,
} from '../site/placeholder-names.ts';

/** Members in which braces mean something else. */
const OTHER_LANGUAGES = new Set(['pattern', 'search']);

/**
 * Whether what looks like a placeholder of the request is one: what is none stays in the text as it
 * is, and nobody would notice.
 */
export function checkPlaceholders(site: SiteConfig, report: Report): void {
  const { routes, errorRoutes, discovery } = site;
  const everywhere = { report, isKnown: isPlaceholder };
  look([routes, errorRoutes], site, everywhere);
  if (discovery === null) return;
  const { changes, ...others } = discovery;
  for (const part of Object.values(others)) look(part, discovery, everywhere);
  const isKnown = (name: string) => CHANGE_PLACEHOLDERS.has(name) || isPlaceholder(name);
  look(changes, discovery, { report, isKnown });
}

interface Looking {
  readonly report: Report;
  readonly isKnown: (name: string) => boolean;
}

/** @param about what of the configuration it is part of, of which the place is known */
function look(value: unknown, about: object, looking: Looking): void {
  if (typeof value === 'string') {
    for (const name of namesIn(value)) {
      if (looksLikePlaceholder(name) && !looking.isKnown(name)) {
        looking.report(about, unknownPlaceholder(name));
      }
    }
    return;
  }
  if (typeof value !== 'object' || value === null || value instanceof Secret) return;
  // Of a list of texts nothing is known but where the whole of it was written.
  const place = Array.isArray(value) ? about : value;
  for (const [name, member] of Object.entries(value)) {
    if (!OTHER_LANGUAGES.has(name)) look(member, place, looking);
  }
}

function namesIn(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(PLACEHOLDER)].flatMap(([, name]) => name ?? []));
}

function unknownPlaceholder(name: string) {
  const shown = name.slice(0, 80);
  const nearest = nearestName(shown, placeholdersLike(shown));
  return {
    severity: 'warning',
    code: 'unknown-placeholder',
    message: `{${shown}} is no placeholder, and stays in the text as it is`,
    hint:
      nearest === undefined
        ? `write \\{${shown}} if the braces are meant; docs/hubfile.md lists the placeholders`
        : `did you mean {${nearest}}? write \\{${shown}} if the braces are meant`,
  } as const;
}

import { JWKS_ALGORITHMS, staticKeySet } from '../auth/key.ts';
import { LEGACY_FIX, readsLegacyTokens } from '../auth/verify.ts';
import type { Config, HubConfig, KeySource } from '../config/config.ts';
import { parsePostgresUrl } from '../config/postgres-url.ts';
import { allHubs } from '../config/sites.ts';
import type { Report } from '../config/problem.ts';
import { HubgateError } from '../kernel/error.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import { deadLettersOf, identifiers } from '../outbox/identifiers.ts';
import { acceptedTopics } from '../outbox/row-updates.ts';
import {
  checkCertificates,
  checkLogFile,
  checkOptionFiles,
  checkSiteFiles,
  checkStorage,
  type ReadFile,
} from './check-files.ts';
import { checkDiscovery } from './check-discovery.ts';
import { checkGuards, checkHandshake, checkPlayground } from './check-security.ts';
import { checkListenerServers } from './listener-servers.ts';
import { checkHubsOfSite, checkPatterns } from './check-routes.ts';

/**
 * Checks the patterns and files that a configuration names. Each can be checked on its own, whatever else is
 * wrong.
 */
export function checkNamed({ options, sites }: Config, read: ReadFile, report: Report): void {
  checkOptionFiles(options, read, report);
  for (const log of [options.log, ...options.requestLogs]) checkLogFile(log, report);
  checkStorage(options, report);
  for (const site of sites) {
    checkPatterns(site, report);
    checkSiteFiles(site, read, report);
    checkHandshake(site.tls, report);
    for (const log of site.accessLogs) checkLogFile(log, report);
  }
}

/**
 * Checks what only the parts of a gateway can determine, without opening any: whether its keys can be used,
 * its tokens are valid for its hubs, and its names can get certificates.
 *
 * @param complete whether all sites are included, or only those without errors so far
 */
export function checkParts(config: Config, complete: boolean, report: Report): void {
  const { options, sites } = config;
  for (const site of sites) checkHubsOfSite(site, report);
  for (const { site, hub, further } of allHubs(config)) {
    checkPlayground(hub, site, report);
    checkGuards(hub, further ? hub.name : null, site.routes, report);
    checkHubKeys(hub, report);
    checkOutbox(hub, report);
    checkLegacyReader(hub, report);
  }
  // A hub that another site announces may belong to a site that is not included.
  const ofOneSite = sites.filter(({ discovery }) => discovery?.hub === null);
  checkDiscovery(complete ? config : { options, sites: ofOneSite }, report);
  checkCertificates(config, report);
  if (complete) checkListenerServers(config, report);
}

/** Checks that a hub's keys can be used. */
export function checkHubKeys({ issuers, legacy }: HubConfig, report: Report): void {
  for (const { publisher, subscriber } of [...issuers, legacy]) {
    if (publisher !== null) checkKeySource(publisher, report);
    if (subscriber !== null) checkKeySource(subscriber, report);
  }
}

/** Checks that the address, the table and the topics of a hub's outbox can be used. */
function checkOutbox({ outbox }: HubConfig, report: Report): void {
  if (outbox === null) return;
  const attempt = (field: string, hint: string, check: () => void): void => {
    try {
      check();
    } catch (thrown) {
      if (!(thrown instanceof HubgateError)) throw thrown;
      const { code, message } = thrown;
      report(outbox, { severity: 'error', code, message, hint }, { field });
    }
  };
  attempt('url', 'write postgres://USER@HOST:5432/DATABASE', () => {
    parsePostgresUrl(outbox.url.reveal());
  });
  attempt('table', 'write table hub_outbox', () => {
    deadLettersOf(identifiers(outbox.table));
  });
  attempt('topics', 'write topics /books/*', () => void acceptedTopics(outbox, BASE));
  for (const origin of outbox.origins) {
    const url = parseUrl(origin);
    if (url !== null && /^https?:$/.test(url.protocol) && url.origin === origin) continue;
    const message = `"${origin.slice(0, 80)}" is not an origin`;
    const hint = 'write scheme://host[:port], such as https://example.com';
    report(outbox, { severity: 'error', code: 'bad-origin', message, hint }, { field: 'origins' });
  }
}

/** Patterns are only checked here. */
const BASE = 'https://hub.invalid/';

function checkLegacyReader(hub: HubConfig, report: Report): void {
  if (hub.protocolVersionCompatibility === null) return;
  const finding = readsLegacyTokens
    ? {
        code: 'legacy-relaxed',
        message: 'hubgate ignores typ and aud of all tokens, and iss if there is one issuer',
        hint: 'every token signed with its keys is accepted; remove this option when hub_legacy_tokens_total no longer grows',
      }
    : {
        code: 'legacy-not-loaded',
        message: 'this process does not read 0.x tokens, so it refuses them',
        hint: LEGACY_FIX,
      };
  report(hub, { severity: 'warning', ...finding }, { field: 'protocolVersionCompatibility' });
}

function checkKeySource(source: KeySource, report: Report): void {
  if (source.kind === 'jwt') {
    attempt(source, report, () => staticKeySet(source));
    return;
  }
  for (const algorithm of source.algorithms) {
    if (JWKS_ALGORITHMS.includes(algorithm)) continue;
    report(source, {
      severity: 'error',
      code: 'unsupported-algorithm',
      message: `a JWK Set cannot verify "${algorithm.slice(0, 40)}"`,
      hint: `use some of ${JWKS_ALGORITHMS.join(', ')}`,
    });
  }
}

function attempt(about: object, report: Report, use: () => unknown): void {
  try {
    use();
  } catch (error) {
    if (!(error instanceof HubgateError)) throw error;
    report(about, { severity: 'error', code: error.code, message: error.message });
  }
}

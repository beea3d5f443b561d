import type {
  DiscoveryConfig,
  HeaderOperation,
  RouteConfig,
  SiteConfig,
} from '../config/config.ts';
import type { Finding, Report } from '../config/problem.ts';
import { dataOf, everyRoute } from '../config/routes.ts';
import { grantTemplates } from '../discovery/grant-template.ts';
import { responseFieldsIn } from '../discovery/token-source.ts';
import { verifiesClients } from '../config/identity-operations.ts';
import { type IdentitySource, identitySources } from '../site/identity-placeholders.ts';

type Source = NonNullable<DiscoveryConfig['tokenSource']>;

const CHOSEN = 'client-chosen-identity';

/**
 * Whether the texts that name a user in a token read only what the gateway establishes itself, or
 * what the app answers. While requests run nothing else is read, whatever a configuration says; here
 * it is told where a text could never be filled, or could be filled by the client.
 */
export function checkTokenIdentity(
  site: SiteConfig,
  { tokenSource: source }: DiscoveryConfig,
  report: Report,
): void {
  if (source === null) return;
  const templates = grantTemplates(source);
  for (const read of unique(templates.flatMap(identitySources))) {
    const finding = fault(read, site);
    if (finding !== null) report(source, finding);
  }
  const subject = source.kind === 'exchange' ? source.subjectToken : null;
  for (const read of unique(identitySources(subject ?? ''))) {
    if (read.kind !== 'client' || read.name.startsWith('cookie.')) continue;
    report(source, badSubject(read.name), { field: 'subjectToken' });
  }
  const answered = subject === null ? templates : [...templates, subject];
  for (const field of responseFieldsIn(answered)) checkAnswerField(field, site, source, report);
}

function fault(read: IdentitySource, site: SiteConfig): Finding | null {
  switch (read.kind) {
    case 'answer':
      return null;
    case 'user':
      return establishedBy(site).some(({ user }) => user) ? null : noPasswords();
    case 'certificate':
      return verifiesClients(site) ? null : noCertificates(read.name);
    case 'field': {
      const name = read.name.toLowerCase();
      const isKnown = establishedBy(site).some(({ fields }) =>
        fields.some((field) => field.toLowerCase() === name),
      );
      return isKnown ? null : claimedField(read.name);
    }
    case 'neutral': {
      const isOfHost = read.name === 'host' || read.name.startsWith('labels.');
      return isOfHost && hasManyHosts(site) ? chosenHost(read.name) : null;
    }
    case 'client':
      return chosen(read.name);
  }
}

function establishedBy({ routes, errorRoutes }: SiteConfig) {
  return everyRoute([...routes, ...errorRoutes]).flatMap(
    ({ handler }) => dataOf(handler).establishes?.(handler) ?? [],
  );
}

/** Whether clients choose by which name they ask for the site. */
function hasManyHosts({ addresses }: SiteConfig): boolean {
  return addresses.some(({ host }) => host === '' || host.startsWith('*.'));
}

function claimedField(field: string): Finding {
  return {
    severity: 'error',
    code: CHOSEN,
    message: `any client may send ${field} and have a token in the name of somebody else`,
    hint:
      `let forward_auth { … copy_headers ${field} } establish it, name the user of basic_auth by ` +
      `{http.auth.user.id}, or take the name from the app's answer: {http.response.header.${field}}`,
  };
}

function noPasswords(): Finding {
  return {
    severity: 'error',
    code: 'unestablished-identity',
    message:
      'no basic_auth of this site establishes {http.auth.user.id}, so that there is no token',
    hint: 'add basic_auth, or name the user by a field that forward_auth { … copy_headers } gives',
  };
}

function noCertificates(name: string): Finding {
  return {
    severity: 'error',
    code: 'unestablished-identity',
    message: `this site verifies no client certificates, so {tls_client_${name}} names nobody and there is no token`,
    hint: 'add tls { client_auth { mode require_and_verify; trust_pool file … } }',
  };
}

function chosenHost(name: string): Finding {
  return {
    severity: 'error',
    code: CHOSEN,
    message: `a client of this site chooses what {${name}} is, and so the grants of its token`,
    hint: 'write the name of the host, in a site of its own',
  };
}

function chosen(name: string): Finding {
  return {
    severity: 'error',
    code: CHOSEN,
    message: `a client chooses what {${name}} is, and so in whose name its token is`,
    hint:
      'name the user by what the gateway establishes: {header.FIELD} behind forward_auth { … ' +
      "copy_headers FIELD }, {http.auth.user.id} behind basic_auth, or the app's answer: " +
      '{http.response.header.FIELD}',
  };
}

function badSubject(name: string): Finding {
  return {
    severity: 'error',
    code: CHOSEN,
    message: `a link can bring {${name}} along, and with it the token of somebody else`,
    hint: 'take the subject token from a cookie or a field: {cookie.NAME}, {header.Authorization}',
  };
}

/** What a site itself makes of a field of the app's answer, before the token is made of it. */
function checkAnswerField(field: string, site: SiteConfig, source: Source, report: Report): void {
  const routes = [...site.routes, ...site.errorRoutes];
  for (const operation of operationsOn(field.toLowerCase(), routes)) {
    if (operation.kind === 'delete') {
      report(operation, takenAway(field, source));
      continue;
    }
    const text = operation.kind === 'replace' ? operation.replacement : operation.value;
    const [finding] = identitySources(text).flatMap((read) => fault(read, site) ?? []);
    if (finding !== undefined) report(operation, finding);
  }
}

function operationsOn(field: string, routes: readonly RouteConfig[]): HeaderOperation[] {
  return everyRoute(routes).flatMap(({ handler }) =>
    (dataOf(handler).responseFields?.(handler) ?? []).filter(
      ({ name }) => name.toLowerCase() === field,
    ),
  );
}

function takenAway(field: string, { kind }: Source): Finding {
  return {
    severity: 'warning',
    code: 'field-taken-away',
    message: `this takes ${field} away before token ${kind} can read it, so that there is no token`,
    hint: `remove this line: what token ${kind} has read goes no further (unless keep_fields)`,
  };
}

/** Each source once, however often the texts read it. */
function unique(sources: readonly IdentitySource[]): IdentitySource[] {
  return [...new Map(sources.map((one) => [JSON.stringify(one), one])).values()];
}

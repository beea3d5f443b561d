// The sites of a gateway, and all of its configuration: their types, defaults and shapes.

import { PORT } from './units.ts';
import { dnsShape } from './dns-challenge.ts';
import { isOpenSslName, lowerCaseHost, isLogName } from './well-formed.ts';
import { defaultDiscovery, discoveryShape, type HubConfig, hubShape } from './shape-hub.ts';
import {
  acmeAccountMembers,
  bindAddress,
  challengesShape,
  type GlobalOptions,
  logMembers,
  optionsShape,
} from './shape-options.ts';
import type { ConfigRegistry } from './routes.ts';
import { routeShapes } from './shape-routes.ts';
import {
  byKind,
  defaultsOf,
  later,
  list,
  object,
  type Of,
  optional,
  type Reading,
  section,
  type Shape,
  withDefault,
} from './shape.ts';
import { count, flag, name, oneOf, text } from './shape-values.ts';

/** Host names are public in the DNS, so they are always shown, even if they came from the environment. */
const host: Shape<string> = {
  ...text('a host in lower case; empty for any', (each) => each === lowerCaseHost(each)),
  write: (value) => value,
};

const addressMembers = {
  scheme: withDefault(oneOf('http', 'https'), 'https'),
  /** Lower case; `*.example.com` for one label, empty for any host. IPv6 without brackets. */
  host,
  /** null: the port for the scheme in the global options. */
  port: optional(count(PORT)),
};

export interface SiteAddress extends Of<typeof addressMembers> {}

const version = oneOf('TLSv1.2', 'TLSv1.3');
const openSslNames = withDefault(list(text('a name', isOpenSslName)), []);

const acmeIssuerMembers = {
  /** URL of the directory, to which the key of an external account belongs. */
  directory: optional(name('the URL of an ACME directory')),
  email: optional(name('an email address')),
  ...acmeAccountMembers,
  challenges: optional(challengesShape),
  /** How names, including wildcards, are proven with DNS instead; null: with `challenges`. */
  dns: optional(dnsShape),
};

/** An ACME authority. null means the setting of the global options. */
export interface AcmeIssuerConfig extends Of<typeof acmeIssuerMembers> {
  readonly kind: 'acme';
}

/** An authority with the settings of the global options. */
export const defaultAcmeIssuer = defaultsOf(acmeIssuerMembers);

/** The issuer of a certificate. */
export type CertificateIssuer = AcmeIssuerConfig | { readonly kind: 'internal' };

type CertificateSource =
  | { readonly kind: 'auto' }
  | { readonly kind: 'internal' }
  | { readonly kind: 'acme'; readonly email: string | null }
  /** Asked one after the other; at least one. */
  | { readonly kind: 'issuers'; readonly issuers: readonly CertificateIssuer[] }
  | { readonly kind: 'files'; readonly certFile: string; readonly keyFile: string };

const certificateSource = byKind<CertificateSource>({
  auto: object({}),
  internal: object({}),
  acme: object({ email: optional(name('an email address')) }),
  issuers: object({
    issuers: list(
      byKind<CertificateIssuer>({ internal: object({}), acme: object(acmeIssuerMembers) }),
      { min: 1 },
    ),
  }),
  files: object({ certFile: name('a PEM file'), keyFile: name('a PEM file') }),
});

const clientAuth = object({
  mode: oneOf('request', 'require', 'verify_if_given', 'require_and_verify'),
  trustPoolFiles: withDefault(list(name('a PEM file')), []),
});

const tlsMembers = {
  /** `auto`: ACME for public names, the local authority for local ones. */
  source: withDefault(certificateSource, { kind: 'auto' }),
  /** Whether certificates are obtained for the names that clients ask for, if `onDemand` allows them. */
  onDemand: withDefault(flag, false),
  /** How ACME proves the names of this site; null: the setting of the global options. */
  dns: optional(dnsShape),
  minVersion: withDefault(version, 'TLSv1.2'),
  maxVersion: withDefault(version, 'TLSv1.3'),
  /** OpenSSL names; empty means the default set. */
  ciphers: openSslNames,
  curves: openSslNames,
  /** `h2` or `http/1.1`, the preferred one first; empty: those of the listener. */
  alpn: withDefault(list(oneOf('h2', 'http/1.1')), []),
  clientAuth: optional(clientAuth),
};

export interface TlsConfig extends Of<typeof tlsMembers> {}

export const defaultTls: TlsConfig = defaultsOf(tlsMembers);

const { level, output: _output, ...otherLogMembers } = logMembers;
const accessLogMembers = {
  /** The name for `log_name` and for the logs of the global options; null for the log without a name. */
  name: optional(text('the name of a log', isLogName)),
  /** Logs requests for these hosts only; empty: for all hosts. */
  hosts: withDefault(list(host), []),
  /** Whether only requests that `log_name` assigns to it are logged. */
  onlyNamed: withDefault(flag, false),
  level,
  /** null: the output of the gateway's own log. */
  output: optional(name('stderr, stdout or the path of a file')),
  ...otherLogMembers,
};

/** Successful requests have the level `info`, requests with a 5xx response `error`. */
export interface AccessLogConfig extends Of<typeof accessLogMembers> {}

export const defaultAccessLog: AccessLogConfig = defaultsOf(accessLogMembers);

const oneHub = later('hub', () => hubShape);

const siteMembers = ({ matcher, routes }: ReturnType<typeof routeShapes>) => ({
  addresses: list<SiteAddress>(object(addressMembers), { min: 1 }),
  /** Addresses to listen on; empty means all interfaces. */
  bind: withDefault(list(bindAddress), []),
  tls: section<TlsConfig>(tlsMembers),
  hub: optional<HubConfig>(oneHub),
  /** Further hubs, each with its own `name`. Only allowed together with `hub`. */
  moreHubs: withDefault(list<HubConfig>(oneHub), []),
  discovery: optional(discoveryShape(matcher)),
  /** Everything else, in the order of execution; `{ kind: 'hub' }` marks the position of a hub. */
  routes: withDefault(routes, []),
  /** Routes for the response when a handler fails, instead of the plain error response. */
  errorRoutes: withDefault(routes, []),
  /** Where requests are logged. Each log has its own lines. */
  accessLogs: withDefault(list<AccessLogConfig>(object(accessLogMembers)), []),
});

export interface SiteConfig extends Of<ReturnType<typeof siteMembers>> {}

/** A site without addresses and functions. */
export const defaultSite: SiteConfig = {
  addresses: [],
  ...defaultsOf(siteMembers(routeShapes({ directives: {}, matchers: {} }))),
};

function siteShape(registry: ConfigRegistry): Shape<SiteConfig> {
  // As in a Hubfile: a site with a hub announces it, unless `discovery` is null.
  const site = object<SiteConfig>(siteMembers(routeShapes(registry)), (has) =>
    has('hub') ? { discovery: defaultDiscovery } : {},
  );
  return {
    ...site,
    /** A mistake in one site does not affect the others, so the findings of each are counted separately. */
    read(node, reading) {
      let findings = 0;
      const report: Reading['report'] = (at, finding) => {
        findings += 1;
        reading.report(at, finding);
      };
      const result = site.read(node, { ...reading, report });
      reading.site(result, findings);
      return result;
    },
  };
}

/**
 * The configuration of a gateway: plain read-only data, the same whether it was written as a Hubfile, as YAML
 * or JSON, or by a program. Strings may contain `{env.X}` and `{file.X}` until `resolvePlaceholders` has run,
 * and request placeholders such as `{host}` permanently. Durations are in milliseconds, sizes in bytes. 0
 * means "no limit" if the field says so.
 */
export interface Config {
  readonly options: GlobalOptions;
  readonly sites: readonly SiteConfig[];
}

/** By their registries, because one load encodes many parts of a configuration. */
const shapes = new WeakMap<ConfigRegistry, Shape<Config>>();

/** The shape of a whole configuration. `$schema` is for the editor. */
export function configShape(registry: ConfigRegistry): Shape<Config> {
  const present = shapes.get(registry);
  if (present !== undefined) return present;
  const config: Shape<Config> = object({
    options: optionsShape,
    sites: withDefault(list(siteShape(registry)), []),
  });
  const shape: Shape<Config> = {
    ...config,
    read(node, reading) {
      if (!(node.value instanceof Map)) return config.read(node, reading);
      const { $schema: _, ...members } = Object.fromEntries(node.value);
      return config.read({ ...node, value: new Map(Object.entries(members)) }, reading);
    },
  };
  shapes.set(registry, shape);
  return shape;
}

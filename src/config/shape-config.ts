import type {
  AccessLogConfig,
  AcmeIssuerConfig,
  CertificateIssuer,
  Config,
  SiteAddress,
  SiteConfig,
  TlsConfig,
} from './config.ts';
import {
  defaultAccessLog,
  defaultAcmeIssuer,
  defaultDiscovery,
  defaultOptions,
  defaultSite,
  defaultTls,
} from './defaults.ts';
import { dnsShape } from './dns-challenge.ts';
import { LOG_FORMATS, logEncodingShape } from './log-encoding.ts';
import { isLogName, isOpenSslName, lowerCaseHost } from './well-formed.ts';
import { discoveryShape, hubShape } from './shape-hub.ts';
import {
  bindAddress,
  challengesShape,
  externalAccountShape,
  logMode,
  optionsShape,
  rollShape,
} from './shape-options.ts';
import type { ConfigRegistry } from './routes.ts';
import { routeShapes } from './shape-routes.ts';
import { byKind, later, list, nullable, object, type Reading, type Shape } from './shape.ts';
import { count, flag, name, oneOf, text } from './shape-values.ts';

/** Host names are public in the DNS, so they are always shown, even if they came from the environment. */
const host: Shape<string> = {
  ...text('a host in lower case; empty for any', (each) => each === lowerCaseHost(each)),
  write: (value) => value,
};

const address = object<SiteAddress>(
  {
    scheme: oneOf('http', 'https'),
    host,
    port: nullable(count({ min: 1, max: 65_535 })),
  },
  { scheme: 'https', port: null },
);

const version = oneOf('TLSv1.2', 'TLSv1.3');
const openSslName = text('a name', isOpenSslName);

const tls = object<TlsConfig>(
  {
    source: byKind<TlsConfig['source']>({
      auto: object({}),
      internal: object({}),
      acme: object({ email: nullable(name('an email address')) }, { email: null }),
      issuers: object({
        issuers: list(
          byKind<CertificateIssuer>({
            internal: object({}),
            acme: object<Omit<AcmeIssuerConfig, 'kind'>>(
              {
                directory: nullable(name('the URL of an ACME directory')),
                email: nullable(name('an email address')),
                rootFile: nullable(name('a PEM file')),
                externalAccount: externalAccountShape,
                challenges: nullable(challengesShape),
                dns: nullable(dnsShape),
              },
              defaultAcmeIssuer,
            ),
          }),
          { min: 1 },
        ),
      }),
      files: object({ certFile: name('a PEM file'), keyFile: name('a PEM file') }),
    }),
    onDemand: flag,
    dns: nullable(dnsShape),
    minVersion: version,
    maxVersion: version,
    ciphers: list(openSslName),
    curves: list(openSslName),
    alpn: list(oneOf('h2', 'http/1.1')),
    clientAuth: nullable(
      object<NonNullable<TlsConfig['clientAuth']>>(
        {
          mode: oneOf('request', 'require', 'verify_if_given', 'require_and_verify'),
          trustPoolFiles: list(name('a PEM file')),
        },
        { trustPoolFiles: [] },
      ),
    ),
  },
  defaultTls,
);

const oneHub = later('hub', () => hubShape);

const { addresses: _, ...siteDefaults } = defaultSite;

const accessLog = object<AccessLogConfig>(
  {
    name: nullable(text('the name of a log', isLogName)),
    hosts: list(host),
    onlyNamed: flag,
    level: oneOf('debug', 'info', 'warn', 'error'),
    output: nullable(name('stderr, stdout or the path of a file')),
    format: oneOf(...LOG_FORMATS),
    encoding: logEncodingShape,
    roll: nullable(rollShape),
    mode: logMode,
  },
  defaultAccessLog,
);

function siteShape(registry: ConfigRegistry): Shape<SiteConfig> {
  const { matcher, routes } = routeShapes(registry);
  const site = object<SiteConfig>(
    {
      addresses: list(address, { min: 1 }),
      bind: list(bindAddress),
      tls,
      hub: nullable(oneHub),
      moreHubs: list(oneHub),
      discovery: nullable(discoveryShape(matcher)),
      routes,
      errorRoutes: routes,
      accessLogs: list(accessLog),
    },
    // As in a Hubfile: a site with a hub announces it, unless `discovery` is null.
    (has) => (has('hub') ? { ...siteDefaults, discovery: defaultDiscovery } : siteDefaults),
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

/** By their registries, because one load encodes many parts of a configuration. */
const shapes = new WeakMap<ConfigRegistry, Shape<Config>>();

/** The shape of a whole configuration. `$schema` is for the editor. */
export function configShape(registry: ConfigRegistry): Shape<Config> {
  const present = shapes.get(registry);
  if (present !== undefined) return present;
  const config: Shape<Config> = object(
    { options: optionsShape, sites: list(siteShape(registry)) },
    { options: defaultOptions, sites: [] },
  );
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

import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Config, HubConfig, SiteConfig, SiteAddress } from '../config/config.ts';
import { defaultHub } from '../config/shape-hub.ts';
import { allHubs, type HubOfSite, hubsOf } from '../config/sites.ts';
import { HubgateError } from '../kernel/error.ts';
import { makeDirectory } from '../kernel/files.ts';
import { parseJsonObject, parseUrl, requireUrl } from '../kernel/parse.ts';
import type { Secret } from '../kernel/secret.ts';
import type { History, HistorySurroundings } from '../transports/history.ts';
import type { TransportConfig } from '../config/transports.ts';
import { openHistory, setUpOf, placeTransport } from '../transports/registry.ts';
import { isIP } from 'node:net';
import { profiles } from '../hub/profile.ts';

export interface HistoryNames {
  readonly of: (site: SiteConfig, hub: HubConfig) => string;
  /** Each name with the identities of its hub. */
  readonly known: readonly (readonly [name: string, identities: readonly string[]])[];
  /** Names of histories that this project had in its last run and no longer has. */
  readonly leftBehind: readonly string[];
  /** Histories that another existing project had in its last run. */
  readonly shared: readonly (readonly [name: string, project: string])[];
}

/** The contents of `<storage>/history/names.json`. */
interface Kept {
  /** Names by the projects that had them in their last run; the most recently used projects are last. */
  readonly projects: Readonly<Record<string, readonly string[]>>;
  /** Names by the identities of their hubs: `name` of the hub, addresses of its site. */
  readonly names: Readonly<Record<string, string>>;
}

/** Projects that are remembered. */
const MAX_PROJECTS = 100;
/** Former addresses that are remembered. */
const MAX_REMEMBERED = 10_000;

/** The configuration file, which identifies the project if several share a storage; '' for none. */
export function projectOf({ options }: Config): string {
  return options.hiddenFiles[0] ?? '';
}

/**
 * A history is named after the first address that its site ever had. The name stays while the hub keeps its
 * `name`, or its site one of its addresses. A further hub of a site is identified only by its `name`.
 */
export function historyNames(
  config: Config,
  storage: string,
  project = projectOf(config),
): HistoryNames {
  const kept = readKept(storage);
  const hubs = allHubs(config);
  const of = new Map<HubOfSite, string>();
  const taken = new Set<string>();
  const take = (one: HubOfSite, name: string): void => {
    of.set(one, name);
    taken.add(name);
  };
  const known = (one: HubOfSite): readonly string[] =>
    identities(one).flatMap((identity) => {
      const name = Object.hasOwn(kept.names, identity) ? kept.names[identity] : undefined;
      return name ?? (hasHistory(one, identity, storage) ? identity : []);
    });
  // If an address has moved to another site, the history stays with the site that it is named after.
  for (const mine of [true, false]) {
    for (const one of hubs) {
      if (of.has(one)) continue;
      const own = identities(one);
      const name = known(one).find((each) => !taken.has(each) && own.includes(each) === mine);
      if (name !== undefined) take(one, name);
    }
  }
  for (const one of hubs) {
    const { site, hub, further } = one;
    const name = further ? `${siteName(site)} ${hub.name}` : siteName(site);
    if (!of.has(one)) take(one, unusedName(name, taken));
  }
  return {
    of(site, hub) {
      const one = hubs.find((each) => each.site === site && each.hub === hub);
      return (one === undefined ? undefined : of.get(one)) ?? '';
    },
    known: [...of].map(([one, name]) => [name, identities(one)] as const),
    leftBehind: (kept.projects[project] ?? []).filter((name) => !taken.has(name)),
    shared: Object.entries(kept.projects)
      .filter(([file]) => file !== project && file !== '' && existsSync(file))
      .flatMap(([file, names]) =>
        names.filter((name) => taken.has(name)).map((name) => [name, file] as const),
      ),
  };
}

/** Stores the names of the active configuration. */
export function keepHistoryNames({ known }: HistoryNames, storage: string, project: string): void {
  const before = readKept(storage);
  const present = known.flatMap(([name, identities]) => identities.map((one) => [one, name]));
  const names = Object.fromEntries(
    [...Object.entries(before.names), ...present].slice(-MAX_REMEMBERED),
  );
  const others = Object.entries(before.projects).filter(
    ([file]) => file !== project && (file === '' || existsSync(file)),
  );
  const own = [project, known.map(([name]) => name)] as const;
  const projects = Object.fromEntries([...others, own].slice(-MAX_PROJECTS));
  const text = JSON.stringify({ projects, names }, null, 2);
  if (known.length === 0 && before.projects[project] === undefined) return;
  const file = fileOf(storage);
  if (text === JSON.stringify(before, null, 2)) return;
  makeDirectory(dirname(file));
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    writeFileSync(temporary, text, { mode: 0o600, flag: 'wx' });
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

function identities({ site, hub, further }: HubOfSite): readonly string[] {
  const named = hub.name === defaultHub.name ? [] : [`hub ${hub.name}`];
  if (further) return named;
  return [...named, ...site.addresses.map((address) => siteName({ addresses: [address] }))];
}

/** Whether a history exists from a version that did not store names. */
function hasHistory({ hub }: HubOfSite, name: string, storage: string): boolean {
  const directory = encodeURIComponent(`${name} ${hub.path ?? ''}`.trim());
  return existsSync(join(storage, 'history', directory));
}

function unusedName(name: string, taken: ReadonlySet<string>): string {
  for (let number = 1; ; number += 1) {
    const candidate = number === 1 ? name : `${name} ${number}`;
    if (!taken.has(candidate)) return candidate;
  }
}

function readKept(storage: string): Kept {
  try {
    const { projects, names } = parseJsonObject(readFileSync(fileOf(storage), 'utf8')) ?? {};
    return {
      projects: Object.fromEntries(
        entriesOf(projects).map(([file, had]) => [file, Array.isArray(had) ? had.map(String) : []]),
      ),
      names: Object.fromEntries(entriesOf(names).map(([key, name]) => [key, String(name)])),
    };
  } catch {
    // Absent: no names are known then.
    return NOTHING;
  }
}

function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  return typeof value === 'object' && value !== null ? Object.entries(value) : [];
}

const NOTHING: Kept = { projects: {}, names: {} };

function fileOf(storage: string): string {
  return join(storage, 'history', 'names.json');
}

export type { History, DatedUpdate } from '../transports/history.ts';
export { setUpOf } from '../transports/registry.ts';

/**
 * Opens the history of a hub in a configuration, while its gateway runs or not.
 *
 * @param wanted the name of the hub or of its site; null if there is only one
 * @param storage directory of the gateway's storage, absolute
 * @throws HubgateError `invalid-argument` if it is not clear which hub is meant, or where its history is; errors of opening
 */
export function openHistoryOf(
  config: Config,
  wanted: string | null,
  { storage, ...around }: HistorySurroundings & { readonly storage: string },
): Promise<History> {
  const transport = transportOfHub(config, wanted, storage);
  if (urlsOf(transport).some((url) => url?.reveal() === '')) {
    const message =
      'The URL of the history is empty: set the variable that has it, or name a file that sets it with --envfile';
    throw new HubgateError('invalid-argument', message);
  }
  return openHistory(transport, around);
}

/** Those of the server; none for a history of this machine. */
function urlsOf(transport: TransportConfig): readonly (Secret | null)[] {
  if (transport.kind === 'postgres') return [transport.url, transport.listenUrl];
  return transport.kind === 'redis' ? transport.urls : [];
}

/** What the owner of the store of a hub executes before its gateway starts; otherwise as {@link openHistoryOf}. */
export function setUpOfHub(
  config: Config,
  wanted: string | null,
  { storage, role }: { readonly storage: string; readonly role: string | null },
): Promise<string> {
  return setUpOf(transportOfHub(config, wanted, storage), role);
}

function transportOfHub(config: Config, wanted: string | null, storage: string): TransportConfig {
  const kept = historyNames(config, storage);
  const hubs = allHubs(config).map(({ site, hub, further }) => {
    const ofSite = [siteName(site), ...site.addresses.map(({ host }) => host)];
    const names = further ? [hub.name] : [hub.name, ...ofSite];
    return { hub, site: siteName(site), kept: kept.of(site, hub), names };
  });
  const meant = wanted === null ? hubs : hubs.filter(({ names }) => names.includes(wanted));
  const [one] = meant;
  if (one === undefined || meant.length > 1) {
    const known = hubs.map(({ site, hub }) => (hub.name === 'default' ? site : hub.name));
    const message =
      known.length === 0
        ? 'This configuration has no hub'
        : `Choose a history: --hub ${known.join(' or --hub ')}`;
    throw new HubgateError('invalid-argument', message);
  }
  return placedTransport(one.kept, one.hub, storage);
}

/** The location of the hub that a site announces. */
export type HubPlace =
  | { readonly kind: 'own'; readonly hub: HubConfig }
  | {
      readonly kind: 'site';
      readonly site: SiteConfig;
      readonly hub: HubConfig;
      readonly host: string;
      readonly url: string;
    }
  | { readonly kind: 'elsewhere'; readonly host: string; readonly url: string };

/**
 * This site's hub, one of this site by its path, one of another site by its address (`hub.example.com`, with
 * port if there are several, or as URL), or an external one by its URL; null if there is none with that name.
 */
export function placeOfHub(site: SiteConfig, config: Config): HubPlace | null {
  const named = site.discovery?.hub ?? null;
  if (named === null) return site.hub === null ? null : { kind: 'own', hub: site.hub };
  if (named.startsWith('/')) {
    const hub = hubsOf(site).find((each) => hubPath(each) === named);
    return hub === undefined ? null : { kind: 'own', hub };
  }
  for (const { site: other, hub, further } of allHubs(config)) {
    for (const address of other.addresses) {
      const origin = originOf(address, config);
      const url = origin + hubPath(hub);
      // Further hubs are identified only by their URLs.
      const names = further ? [url] : namesOf(address, origin, url);
      if (!names.includes(named.toLowerCase())) continue;
      if (other === site) return { kind: 'own', hub };
      return { kind: 'site', site: other, hub, host: address.host, url };
    }
  }
  if (parseUrl(named) === null || !/^https?:\/\//i.test(named)) return null;
  return { kind: 'elsewhere', host: requireUrl(named).hostname, url: named };
}

export function hubPath({ path, profile }: HubConfig): string {
  return path ?? profiles[profile].path;
}

function namesOf({ host, port }: SiteAddress, origin: string, url: string): readonly string[] {
  return [host, ...(port === null ? [] : [`${host}:${port}`]), origin, url];
}

/** The origin of the pages of a site at one of its addresses. */
export function originOf({ scheme, host, port }: SiteAddress, { options }: Config): string {
  const [configured, standard] =
    scheme === 'https' ? [options.httpsPort, 443] : [options.httpPort, 80];
  const actual = port ?? configured;
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return `${scheme}://${name}${actual === standard ? '' : `:${actual}`}`;
}

/** Identifies a site: its first address. */
export function siteName({ addresses }: Pick<SiteConfig, 'addresses'>): string {
  const [first] = addresses;
  return first === undefined ? '' : `${first.scheme}://${first.host}:${first.port ?? ''}`;
}

/** The settings of a hub's transport with the location of its history; `site` is the name of the history. */
export function placedTransport(site: string, hub: HubConfig, storage: string): TransportConfig {
  return placeTransport(hub.transport, { storage, hub: `${site} ${hub.path ?? ''}`.trim() });
}

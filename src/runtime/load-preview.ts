import { registry } from '../directives/registry.ts';
import { bindAddressText } from '../config/bind-address.ts';
import type { Config, SiteConfig } from '../config/config.ts';
import { encodeConfig } from '../config/serialize.ts';
import { defaultOptions } from '../config/shape-options.ts';
import { siteAddressText } from '../config/sites.ts';
import type { CertificateOrder } from '../tls/certificates.ts';
import { cachePlaces } from './cache-places.ts';
import type { EndingStreams, Generation } from './generation.ts';
import { listenerKey, type PlannedListener } from './listen-plan.ts';
import type { OpenListener, OpenPorts } from './open-ports.ts';

/** What loading a configuration would change, or has changed. */
export interface LoadPreview {
  /** Sites by their addresses. */
  readonly sites: {
    readonly added: readonly string[];
    readonly removed: readonly string[];
    readonly changed: readonly string[];
  };
  readonly listeners: {
    readonly opened: readonly string[];
    readonly closed: readonly string[];
    /** From HTTP to HTTPS, or back. */
    readonly changed: readonly string[];
    readonly handedOver: readonly { readonly from: string; readonly to: string }[];
  };
  readonly streams: readonly EndingStreams[];
  /** Names of histories that no hub would have any more. */
  readonly historiesLeftBehind: readonly string[];
  readonly certificates: readonly CertificateOrder[];
  /** Caches that begin empty: the addresses of their sites, and their paths if a site has several. */
  readonly cachesEmptied: readonly string[];
}

/** The preview of a configuration that equals the active one. */
export const NO_CHANGE: LoadPreview = {
  sites: { added: [], removed: [], changed: [] },
  listeners: { opened: [], closed: [], changed: [], handedOver: [] },
  streams: [],
  historiesLeftBehind: [],
  certificates: [],
  cachesEmptied: [],
};

/** A configuration with the generation built from it. */
interface Built {
  readonly config: Config;
  readonly generation: Generation;
}

/** @param current null before the first configuration is active */
export function previewLoad(
  current: (Built & { readonly listeners: readonly OpenListener[] }) | null,
  next: Built,
  ports: OpenPorts,
): LoadPreview {
  return {
    sites: changesOfSites(current?.config ?? null, next.config),
    listeners: changesOfListeners(current?.listeners ?? [], ports),
    streams: [...streamsOfRemovedHubs(current, next), ...next.generation.refusedStreams()],
    historiesLeftBehind: next.generation.historiesLeftBehind,
    certificates: next.generation.orders(),
    cachesEmptied: emptiedCaches(current?.config ?? null, next.config),
  };
}

/** Adds up the previews of one load from the processes of a gateway; only their streams differ. */
export function sumPreviews([first, ...others]: readonly [
  LoadPreview,
  ...LoadPreview[],
]): LoadPreview {
  const streams = new Map<string, EndingStreams>();
  for (const one of [first, ...others].flatMap((preview) => preview.streams)) {
    const key = JSON.stringify([one.hub, one.why]);
    streams.set(key, { ...one, count: one.count + (streams.get(key)?.count ?? 0) });
  }
  return { ...first, streams: [...streams.values()] };
}

function changesOfSites(before: Config | null, after: Config): LoadPreview['sites'] {
  const old = sitesByAddress(before);
  const now = sitesByAddress(after);
  return {
    added: [...now.keys()].filter((address) => !old.has(address)),
    removed: [...old.keys()].filter((address) => !now.has(address)),
    changed: [...now].flatMap(([address, text]) =>
      old.has(address) && old.get(address) !== text ? [address] : [],
    ),
  };
}

/** The configuration for each address, as text. */
function sitesByAddress(config: Config | null): ReadonlyMap<string, string> {
  if (config === null) return new Map();
  return new Map(
    config.sites.flatMap((site) => {
      const text = siteText(config, site);
      return site.addresses.map((address) => [siteAddressText(address), text] as const);
    }),
  );
}

/** Options of the process, which change no site. The files of the configuration are among the hidden ones. */
const { admin, metrics, gracePeriodMs, workers, log, hiddenFiles } = defaultOptions;
const OF_THE_PROCESS = { admin, metrics, gracePeriodMs, workers, log, hiddenFiles };

/** Without its addresses: adding an address does not change the others. */
function siteText({ options }: Config, site: SiteConfig): string {
  const alone: Config = {
    options: { ...options, ...OF_THE_PROCESS },
    sites: [{ ...site, addresses: [] }],
  };
  return JSON.stringify(encodeConfig(alone, registry, { showSecrets: true, brief: false }));
}

function emptiedCaches(before: Config | null, after: Config): string[] {
  const kept = new Set(after.sites.flatMap(cachePlaces).map(({ digest }) => digest));
  const lost = (before?.sites ?? []).flatMap(cachePlaces).filter(({ digest }) => !kept.has(digest));
  return [...new Set(lost.map(({ name }) => name))];
}

function changesOfListeners(
  before: readonly OpenListener[],
  { plan, handedOver }: OpenPorts,
): LoadPreview['listeners'] {
  const old = new Map(before.map(({ planned }) => [listenerKey(planned), planned]));
  const wanted = new Set(plan.map(listenerKey));
  const taken = new Set(handedOver.map(({ planned }) => planned));
  const left = new Set(handedOver.flatMap(({ from }) => from.map(({ planned }) => planned)));
  return {
    opened: plan
      .filter((planned) => !old.has(listenerKey(planned)) && !taken.has(planned))
      .map(textOf),
    closed: [...old]
      .filter(([key, planned]) => !wanted.has(key) && !left.has(planned))
      .map(([, planned]) => textOf(planned)),
    changed: plan
      .filter((planned) => textOf(old.get(listenerKey(planned)) ?? planned) !== textOf(planned))
      .map(textOf),
    handedOver: handedOver.flatMap(({ planned, from }) =>
      from.map((one) => ({ from: textOf(one.planned), to: textOf(planned) })),
    ),
  };
}

function textOf({ bind, port, secure }: PlannedListener): string {
  const scheme = secure ? 'https' : 'http';
  if (bind.kind !== 'host') return `${scheme} on ${bindAddressText(bind)}`;
  const name = bind.host.includes(':') ? `[${bind.host}]` : bind.host || '*';
  return `${scheme}://${name}:${port}`;
}

function streamsOfRemovedHubs(current: Built | null, { generation }: Built): EndingStreams[] {
  const why =
    'their hub, its path, its resource_identifier or its transport is no longer configured';
  return [...(current?.generation.cores ?? [])].flatMap(([core, hub]) => {
    const count = generation.cores.has(core) ? 0 : core.hub.counts.connected;
    return count === 0 ? [] : [{ hub, count, why }];
  });
}

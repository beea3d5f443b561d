import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Config, SiteConfig } from '../config/config.ts';
import { defaultHub } from '../config/defaults.ts';
import { siteName } from './hub-place.ts';

/** Under which name each hub keeps its history. */
export interface HistoryNames {
  readonly of: ReadonlyMap<SiteConfig, string>;
  /** Names of histories that the configuration in force has, and this one has not. */
  readonly leftBehind: readonly string[];
}

/** What is remembered in `<storage>/history/names.json`. */
interface Kept {
  /** Names in force. */
  readonly current: readonly string[];
  /** Names by what their hubs were known by: `name` of the hub, addresses of its site. */
  readonly names: Readonly<Record<string, string>>;
}

/** Former addresses that are remembered. */
const MAX_REMEMBERED = 10_000;

/**
 * A history is named after the first address that its site ever had. The name survives while the
 * hub keeps its `name`, or its site one of its addresses.
 */
export function historyNames(config: Config, storage: string): HistoryNames {
  const kept = readKept(storage);
  const hubs = config.sites.filter(({ hub }) => hub !== null);
  const of = new Map<SiteConfig, string>();
  const taken = new Set<string>();
  const take = (site: SiteConfig, name: string): void => {
    of.set(site, name);
    taken.add(name);
  };
  const known = (site: SiteConfig): readonly string[] =>
    identities(site).flatMap((identity) => {
      const name = Object.hasOwn(kept.names, identity) ? kept.names[identity] : undefined;
      return name ?? (hasHistory(site, identity, storage) ? identity : []);
    });
  // Where an address has moved to another site, the history stays with the one that it is named after.
  for (const mine of [true, false]) {
    for (const site of hubs) {
      if (of.has(site)) continue;
      const own = identities(site);
      const name = known(site).find((one) => !taken.has(one) && own.includes(one) === mine);
      if (name !== undefined) take(site, name);
    }
  }
  for (const site of hubs) {
    if (!of.has(site)) take(site, unusedName(siteName(site), taken));
  }
  return { of, leftBehind: kept.current.filter((name) => !taken.has(name)) };
}

/** Remembers the names of the configuration that is now in force. */
export function keepHistoryNames({ of }: HistoryNames, storage: string): void {
  const before = readKept(storage);
  const present = [...of].flatMap(([site, name]) => identities(site).map((one) => [one, name]));
  const names = Object.fromEntries(
    [...Object.entries(before.names), ...present].slice(-MAX_REMEMBERED),
  );
  const text = JSON.stringify({ current: [...of.values()], names }, null, 2);
  if (of.size === 0 && before.current.length === 0) return;
  const file = fileOf(storage);
  if (text === JSON.stringify(before, null, 2)) return;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  writeFileSync(temporary, text, { mode: 0o600, flag: 'wx' });
  renameSync(temporary, file);
}

function identities({ hub, addresses }: SiteConfig): readonly string[] {
  const named = hub === null || hub.name === defaultHub.name ? [] : [`hub ${hub.name}`];
  return [...named, ...addresses.map((address) => siteName({ addresses: [address] }))];
}

/** One of a version that remembered no names. */
function hasHistory({ hub }: SiteConfig, name: string, storage: string): boolean {
  const directory = encodeURIComponent(`${name} ${hub?.path ?? ''}`.trim());
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
    const value: unknown = JSON.parse(readFileSync(fileOf(storage), 'utf8'));
    if (typeof value !== 'object' || value === null) return NOTHING;
    const { current, names } = value as Partial<Record<keyof Kept, unknown>>;
    const entries = typeof names === 'object' && names !== null ? Object.entries(names) : [];
    return {
      current: Array.isArray(current) ? current.map(String) : [],
      names: Object.fromEntries(entries.map(([key, name]) => [key, String(name)])),
    };
  } catch {
    // Absent, or not ours: nothing is remembered then.
    return NOTHING;
  }
}

const NOTHING: Kept = { current: [], names: {} };

function fileOf(storage: string): string {
  return join(storage, 'history', 'names.json');
}

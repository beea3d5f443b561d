import { Resolver } from 'node:dns/promises';
import { type DnsChallengeConfig, parseNameServer } from '../../../config/dns-challenge.ts';
import { type Clock, wait } from '../../../kernel/clock.ts';
import { AcmeError } from '../acme-error.ts';
import type { ChallengeRecord } from './services/provider.ts';

const FIRST_POLL_MS = 500;
const MAX_POLL_MS = 5000;
/** Time for one response of one server. */
const ANSWER_MS = 5000;
/** CNAME records that are followed for one name. */
const MAX_ALIASES = 8;
/** Name servers of a zone that are asked. */
const MAX_SERVERS = 8;

/**
 * Waits until a record is visible: on all `resolvers`, or without any on all name servers of the zone, which
 * have no outdated cache.
 *
 * @throws AcmeError `acme-dns-failed` if it does not become visible in time; the reason of the signal
 */
export async function untilPropagated(
  record: ChallengeRecord,
  { propagationDelayMs, propagationTimeoutMs, resolvers }: DnsChallengeConfig,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  if (propagationDelayMs > 0) await wait(propagationDelayMs, clock, signal);
  if (propagationTimeoutMs === 0) return;
  const end = clock.monotonic() + propagationTimeoutMs;
  for (let delayMs = FIRST_POLL_MS; ; delayMs = Math.min(delayMs * 2, MAX_POLL_MS)) {
    const late =
      resolvers.length > 0
        ? await serversWithout(record.name, record.value, resolvers)
        : await zoneServersWithout(record);
    if (late.length === 0) return;
    signal.throwIfAborted();
    const left = end - clock.monotonic();
    if (left <= 0) {
      const message = `The TXT record of ${record.name} is not visible at ${late.join(', ')} after ${propagationTimeoutMs} ms`;
      throw new AcmeError('acme-dns-failed', message);
    }
    await wait(Math.min(delayMs, left), clock, signal);
  }
}

/** The servers that do not show the record. */
async function serversWithout(
  name: string,
  value: string,
  servers: readonly string[],
): Promise<readonly string[]> {
  const shown = await Promise.all(
    servers.map(async (server) => {
      const records = await texts(resolverAt([server]), name);
      return records.includes(value) ? [] : [server];
    }),
  );
  return shown.flat();
}

/** The servers that are responsible for the name, or the machine's resolver if they cannot be found. */
async function zoneServersWithout({ name, value }: ChallengeRecord): Promise<readonly string[]> {
  const resolver = resolverAt([]);
  const final = await withoutAliases(resolver, name);
  const servers = await serversOfZone(resolver, final);
  if (servers.length > 0) return serversWithout(final, value, servers);
  return (await texts(resolver, final)).includes(value) ? [] : ["this machine's resolver"];
}

async function withoutAliases(resolver: Resolver, name: string): Promise<string> {
  let current = name;
  for (let step = 0; step < MAX_ALIASES; step += 1) {
    const [alias] = await resolver.resolveCname(current).catch(nothing);
    if (alias === undefined) break;
    current = alias;
  }
  return current;
}

async function serversOfZone(resolver: Resolver, name: string): Promise<readonly string[]> {
  const labels = name.split('.');
  for (let first = 0; first < labels.length - 1; first += 1) {
    const names = await resolver.resolveNs(labels.slice(first).join('.')).catch(nothing);
    if (names.length === 0) continue;
    const addresses = await Promise.all(
      names.slice(0, MAX_SERVERS).map((each) => resolver.resolve4(each).catch(nothing)),
    );
    return addresses.flat().slice(0, MAX_SERVERS);
  }
  return [];
}

async function texts(resolver: Resolver, name: string): Promise<readonly string[]> {
  const records = await resolver.resolveTxt(name).catch(nothing);
  return records.map((parts) => parts.join(''));
}

function resolverAt(servers: readonly string[]): Resolver {
  const resolver = new Resolver({ timeout: ANSWER_MS, tries: 1 });
  if (servers.length > 0) resolver.setServers(servers.map(withPort));
  return resolver;
}

function withPort(server: string): string {
  const { host, port } = parseNameServer(server) ?? { host: server, port: 53 };
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** A missing record and a missing response are treated alike: the question is repeated. */
function nothing(): [] {
  return [];
}

// Between the challenge and the APIs of companies: finds the zone, and lets one change of a name end before the
// next begins, because some APIs can only replace all values of a name.

import type { DnsServiceConfig } from '../../../../config/dns-challenge.ts';
import { apiError, DnsApi } from './api.ts';
import { azure } from './azure.ts';
import { cloudflare } from './cloudflare.ts';
import { desec } from './desec.ts';
import { digitalocean } from './digitalocean.ts';
import { gandi } from './gandi.ts';
import { googleCloudDns } from './google-cloud-dns.ts';
import { hetzner } from './hetzner.ts';
import { ovh } from './ovh.ts';
import { route53 } from './route53.ts';
import {
  changeRecord,
  type DnsService,
  type DnsServiceModule,
  type ZoneRecord,
} from './service.ts';

/** The TXT record of a challenge (RFC 8555 §8.4). */
export type ChallengeRecord = Pick<ZoneRecord, 'name' | 'value' | 'ttlSeconds'>;

/**
 * A service or program that writes TXT records. Several records of one name can exist at once: a name and its
 * wildcard use the same record name. Both methods limit their own time and memory.
 */
export interface DnsProvider {
  /** @throws AcmeError `acme-dns-failed`, or the reason of the signal */
  present(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
  /** Removes exactly this record. A record that does not exist is not an error. */
  cleanup(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
}

const MODULES: Readonly<Record<DnsServiceConfig['kind'], DnsServiceModule>> = {
  azure,
  cloudflare,
  desec,
  digitalocean,
  gandi,
  googleclouddns: googleCloudDns,
  hetzner,
  ovh,
  route53,
};

/** The last change of each name in this process, until it has ended. */
const changes = new Map<string, Promise<void>>();

/** Writes records by the HTTP API of a company. */
export function serviceProvider(config: DnsServiceConfig): DnsProvider {
  const change = (
    { name, value, ttlSeconds }: ChallengeRecord,
    action: 'add' | 'remove',
    signal: AbortSignal,
  ): Promise<void> =>
    afterOthers(`${config.kind} ${name}`, async () => {
      signal.throwIfAborted();
      const service = open(config, signal);
      const { zone, zoneName } = await findZone(name, config.kind, service);
      const relativeName = name === zoneName ? '@' : name.slice(0, -zoneName.length - 1);
      const ttl = Math.max(ttlSeconds, MODULES[config.kind].minTtlSeconds ?? 0);
      const record = { zone, name, relativeName, value, ttlSeconds: ttl };
      await changeRecord(service, config.kind, record, action);
    });
  return {
    present: (record, signal) => change(record, 'add', signal),
    cleanup: (record, signal) => change(record, 'remove', signal),
  };
}

function open(config: DnsServiceConfig, signal: AbortSignal): DnsService {
  const { create, baseUrl } = MODULES[config.kind];
  const credential = (name: string): string =>
    config.credentials.find((each) => each.name === name)?.value.reveal() ?? '';
  return create({
    credential,
    api: (authorize, address = config.apiUrl ?? baseUrl(credential)) =>
      new DnsApi({
        service: config.kind,
        baseUrl: address,
        authorize,
        secrets: config.credentials.map(({ value }) => value.reveal()),
        signal,
      }),
  });
}

/** The zone with the longest name. A public suffix such as `co.uk` is asked for in vain. */
async function findZone(
  name: string,
  kind: string,
  service: DnsService,
): Promise<{ readonly zone: string; readonly zoneName: string }> {
  const labels = name.split('.');
  for (let first = 0; first < labels.length - 1; first += 1) {
    const zoneName = labels.slice(first).join('.');
    // No zone begins with the label of the challenge.
    if (first === 0 && zoneName.startsWith('_acme-challenge.')) continue;
    const zone = await service.findZone(zoneName);
    if (zone !== null) return { zone, zoneName };
  }
  const message = `shows no zone of ${name}: check that these credentials may read and change it`;
  throw apiError(kind, message);
}

async function afterOthers(key: string, work: () => Promise<void>): Promise<void> {
  const before = changes.get(key) ?? Promise.resolve();
  const mine = before.catch(() => undefined).then(work);
  changes.set(key, mine);
  try {
    await mine;
  } finally {
    if (changes.get(key) === mine) changes.delete(key);
  }
}

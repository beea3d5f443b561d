import { type DnsServiceModule, quoted, recordSetOf, type ZoneRecord } from './service.ts';

/** Gandi LiveDNS API v5: the set of all values of a name is replaced. */
export const gandi: DnsServiceModule = {
  minTtlSeconds: 300,
  baseUrl: () => 'https://api.gandi.net/v5/livedns',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Bearer ${credential('bearer_token')}` }));
    const domainOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    const pathOf = ({ zone, relativeName }: ZoneRecord): string =>
      `${domainOf(zone)}/records/${encodeURIComponent(relativeName)}/TXT`;
    return {
      findZone: (name) => calls.zoneAt(domainOf(name), name),
      read: async (record) =>
        recordSetOf(await calls.find(pathOf(record)), 'rrset_values', 'rrset_ttl'),
      async write(record, after) {
        // This API has no way to say what the set was before.
        if (after === null) await calls.send('DELETE', pathOf(record), { accept: [404] });
        else {
          const body = { rrset_values: after.values.map(quoted), rrset_ttl: after.ttlSeconds };
          await calls.send('PUT', pathOf(record), { body });
        }
        return true;
      },
    };
  },
};

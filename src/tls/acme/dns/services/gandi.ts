import { itemsOf, memberOf, textOf } from './api.ts';
import {
  changeSet,
  type DnsServiceModule,
  quoted,
  type RecordSet,
  unquoted,
  type ZoneRecord,
} from './service.ts';

/** In seconds. */
const MIN_TTL = 300;

/** Gandi LiveDNS API v5: the set of all values of a name is replaced. */
export const gandi: DnsServiceModule = {
  baseUrl: () => 'https://api.gandi.net/v5/livedns',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Bearer ${credential('bearer_token')}` }));
    const domainOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    const change = (record: ZoneRecord, action: 'add' | 'remove'): Promise<void> => {
      const { zone, relativeName, ttlSeconds } = record;
      const path = `${domainOf(zone)}/records/${encodeURIComponent(relativeName)}/TXT`;
      const read = async (): Promise<RecordSet | null> => {
        const known = await calls.find(path);
        if (known === null) return null;
        const values = itemsOf(memberOf(known, 'rrset_values')).map((each) =>
          unquoted(textOf(each) ?? ''),
        );
        return { values, ttlSeconds: Number(memberOf(known, 'rrset_ttl')) };
      };
      const wanted = { ...record, ttlSeconds: Math.max(ttlSeconds, MIN_TTL) };
      return changeSet(wanted, action, calls, read, async (after) => {
        // This API has no way to say what the set was before.
        if (after === null) await calls.send('DELETE', path, { accept: [404] });
        else {
          const body = { rrset_values: after.values.map(quoted), rrset_ttl: after.ttlSeconds };
          await calls.send('PUT', path, { body });
        }
        return true;
      });
    };
    return {
      async findZone(name) {
        return (await calls.find(domainOf(name))) === null ? null : name;
      },
      add: (record) => change(record, 'add'),
      remove: (record) => change(record, 'remove'),
    };
  },
};

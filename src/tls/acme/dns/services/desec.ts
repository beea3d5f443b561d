import { itemsOf, memberOf, textOf } from './api.ts';
import {
  changeSet,
  type DnsServiceModule,
  quoted,
  type RecordSet,
  unquoted,
  type ZoneRecord,
} from './service.ts';

/** In seconds. A domain may allow less, but none forbids it. */
const TTL = 3600;

/** deSEC API v1: the set of all values of a name is replaced. */
export const desec: DnsServiceModule = {
  baseUrl: () => 'https://desec.io/api/v1',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Token ${credential('token')}` }));
    const domainOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    const change = (record: ZoneRecord, action: 'add' | 'remove'): Promise<void> => {
      const { zone, relativeName } = record;
      const read = async (): Promise<RecordSet | null> => {
        const known = await calls.find(
          `${domainOf(zone)}/rrsets/${encodeURIComponent(relativeName)}/TXT/`,
        );
        if (known === null) return null;
        const values = itemsOf(memberOf(known, 'records')).map((each) =>
          unquoted(textOf(each) ?? ''),
        );
        return { values, ttlSeconds: Number(memberOf(known, 'ttl')) };
      };
      return changeSet({ ...record, ttlSeconds: TTL }, action, calls, read, async (after) => {
        // An empty list removes the set. This API has no way to say what the set was before.
        const subname = relativeName === '@' ? '' : relativeName;
        const records = (after?.values ?? []).map(quoted);
        const body = [{ subname, type: 'TXT', ttl: after?.ttlSeconds ?? TTL, records }];
        await calls.send('PUT', `${domainOf(zone)}/rrsets/`, { body });
        return true;
      });
    };
    return {
      async findZone(name) {
        return (await calls.find(`${domainOf(name)}/`)) === null ? null : name;
      },
      add: (record) => change(record, 'add'),
      remove: (record) => change(record, 'remove'),
    };
  },
};

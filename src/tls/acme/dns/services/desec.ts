import { type DnsServiceModule, quoted, recordSetOf } from './service.ts';

/** In seconds. A domain may allow less, but none forbids it. */
const TTL = 3600;

/** deSEC API v1: the set of all values of a name is replaced. */
export const desec: DnsServiceModule = {
  baseUrl: () => 'https://desec.io/api/v1',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Token ${credential('token')}` }));
    const domainOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    return {
      findZone: (name) => calls.zoneAt(`${domainOf(name)}/`, name),
      async read({ zone, relativeName }) {
        const path = `${domainOf(zone)}/rrsets/${encodeURIComponent(relativeName)}/TXT/`;
        return recordSetOf(await calls.find(path), 'records', 'ttl');
      },
      async write({ zone, relativeName }, after, before) {
        // An empty list removes the set. This API has no way to say what the set was before.
        const subname = relativeName === '@' ? '' : relativeName;
        const records = (after?.values ?? []).map(quoted);
        const body = [{ subname, type: 'TXT', ttl: before?.ttlSeconds ?? TTL, records }];
        await calls.send('PUT', `${domainOf(zone)}/rrsets/`, { body });
        return true;
      },
    };
  },
};

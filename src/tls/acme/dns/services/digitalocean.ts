import { itemsOf, memberOf, textOf } from './api.ts';
import { type DnsServiceModule, unquoted, type ZoneRecord } from './service.ts';

/** In seconds. */
const MIN_TTL = 30;

/** DigitalOcean API v2: domains, and records with an id each. The token needs the scopes of `domain`. */
export const digitalocean: DnsServiceModule = {
  baseUrl: () => 'https://api.digitalocean.com/v2',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Bearer ${credential('auth_token')}` }));
    const pathOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    const idsOf = async ({ zone, name, value }: ZoneRecord): Promise<string[]> => {
      const query = `?type=TXT&per_page=200&name=${encodeURIComponent(name)}`;
      const { json } = await calls.send('GET', `${pathOf(zone)}/records${query}`);
      return itemsOf(memberOf(json, 'domain_records')).flatMap((record) => {
        const isIt = unquoted(textOf(memberOf(record, 'data')) ?? '') === value;
        const id = textOf(memberOf(record, 'id'));
        return isIt && id !== undefined ? [id] : [];
      });
    };
    return {
      async findZone(name) {
        return (await calls.find(pathOf(name))) === null ? null : name;
      },
      async add(record) {
        if ((await idsOf(record)).length > 0) return;
        const { zone, relativeName, value, ttlSeconds } = record;
        const ttl = Math.max(ttlSeconds, MIN_TTL);
        const body = { type: 'TXT', name: relativeName, data: value, ttl };
        await calls.send('POST', `${pathOf(zone)}/records`, { body });
      },
      async remove(record) {
        for (const id of await idsOf(record)) {
          await calls.send('DELETE', `${pathOf(record.zone)}/records/${id}`, { accept: [404] });
        }
      },
    };
  },
};

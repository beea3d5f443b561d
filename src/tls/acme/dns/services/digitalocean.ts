import { memberOf } from './api.ts';
import { type DnsServiceModule, idsWith } from './service.ts';

/** DigitalOcean API v2: domains, and records with an id each. The token needs the scopes of `domain`. */
export const digitalocean: DnsServiceModule = {
  minTtlSeconds: 30,
  baseUrl: () => 'https://api.digitalocean.com/v2',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Bearer ${credential('auth_token')}` }));
    const pathOf = (zone: string): string => `/domains/${encodeURIComponent(zone)}`;
    return {
      findZone: (name) => calls.zoneAt(pathOf(name), name),
      async idsOf({ zone, name, value }) {
        const query = `?type=TXT&per_page=200&name=${encodeURIComponent(name)}`;
        const { json } = await calls.send('GET', `${pathOf(zone)}/records${query}`);
        return idsWith(memberOf(json, 'domain_records'), 'data', value);
      },
      create: ({ zone, relativeName, value, ttlSeconds: ttl }) =>
        calls.send('POST', `${pathOf(zone)}/records`, {
          body: { type: 'TXT', name: relativeName, data: value, ttl },
        }),
      delete: ({ zone }, id) =>
        calls.send('DELETE', `${pathOf(zone)}/records/${id}`, { accept: [404] }),
    };
  },
};

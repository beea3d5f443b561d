import { memberOf, textOf } from './api.ts';
import { type DnsServiceModule, idsWith, quoted } from './service.ts';

/** Cloudflare API v4: zones, and records with an id each. The token needs Zone:Read and DNS:Edit. */
export const cloudflare: DnsServiceModule = {
  minTtlSeconds: 60,
  baseUrl: () => 'https://api.cloudflare.com/client/v4',
  create({ credential, api }) {
    const bearer = (token: string) => api(() => ({ authorization: `Bearer ${token}` }));
    const records = bearer(credential('api_token'));
    // Some people let one token read the list of zones, and another one change records.
    const zones = bearer(credential('zone_token') || credential('api_token'));
    return {
      async findZone(name) {
        const { json } = await zones.send('GET', `/zones?name=${encodeURIComponent(name)}`);
        return textOf(memberOf(json, 'result', 0, 'id')) ?? null;
      },
      async idsOf({ zone, name, value }) {
        const query = `?type=TXT&per_page=100&name=${encodeURIComponent(name)}`;
        const { json } = await records.send('GET', `/zones/${zone}/dns_records${query}`);
        return idsWith(memberOf(json, 'result'), 'content', value);
      },
      create: ({ zone, name, value, ttlSeconds: ttl }) =>
        records.send('POST', `/zones/${zone}/dns_records`, {
          body: { type: 'TXT', name, content: quoted(value), ttl },
        }),
      delete: ({ zone }, id) =>
        records.send('DELETE', `/zones/${zone}/dns_records/${id}`, { accept: [404] }),
    };
  },
};

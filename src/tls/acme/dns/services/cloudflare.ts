import { itemsOf, memberOf, textOf } from './api.ts';
import { type DnsServiceModule, quoted, unquoted } from './service.ts';

/** The shortest TTL that every plan allows, in seconds. */
const MIN_TTL = 60;

/** Cloudflare API v4: zones, and records with an id each. The token needs Zone:Read and DNS:Edit. */
export const cloudflare: DnsServiceModule = {
  baseUrl: () => 'https://api.cloudflare.com/client/v4',
  create({ credential, api }) {
    const bearer = (token: string) => api(() => ({ authorization: `Bearer ${token}` }));
    const records = bearer(credential('api_token'));
    // Some people let one token read the list of zones, and another one change records.
    const zones = bearer(credential('zone_token') || credential('api_token'));
    const idsOf = async (zone: string, name: string, value: string): Promise<string[]> => {
      const path = `/zones/${zone}/dns_records?type=TXT&per_page=100&name=${encodeURIComponent(name)}`;
      const { json } = await records.send('GET', path);
      return itemsOf(memberOf(json, 'result')).flatMap((record) => {
        const isIt = unquoted(textOf(memberOf(record, 'content')) ?? '') === value;
        const id = textOf(memberOf(record, 'id'));
        return isIt && id !== undefined ? [id] : [];
      });
    };
    return {
      async findZone(name) {
        const { json } = await zones.send('GET', `/zones?name=${encodeURIComponent(name)}`);
        return textOf(memberOf(json, 'result', 0, 'id')) ?? null;
      },
      async add({ zone, name, value, ttlSeconds }) {
        if ((await idsOf(zone, name, value)).length > 0) return;
        const ttl = Math.max(ttlSeconds, MIN_TTL);
        const body = { type: 'TXT', name, content: quoted(value), ttl };
        await records.send('POST', `/zones/${zone}/dns_records`, { body });
      },
      async remove({ zone, name, value }) {
        for (const id of await idsOf(zone, name, value)) {
          await records.send('DELETE', `/zones/${zone}/dns_records/${id}`, { accept: [404] });
        }
      },
    };
  },
};

import { createHash } from 'node:crypto';
import { itemsOf, memberOf, textOf } from './api.ts';
import { type DnsServiceModule, unquoted, type ZoneRecord } from './service.ts';

const ENDPOINTS: Readonly<Record<string, string>> = {
  'ovh-eu': 'https://eu.api.ovh.com/1.0',
  'ovh-ca': 'https://ca.api.ovh.com/1.0',
  'ovh-us': 'https://api.us.ovhcloud.com/1.0',
};
/** In seconds. */
const MIN_TTL = 60;

/**
 * OVHcloud API: records with an id each, and a zone that is refreshed after a change. The consumer key needs GET,
 * POST and DELETE on `/domain/zone/*`.
 */
export const ovh: DnsServiceModule = {
  baseUrl: (credential) => {
    const endpoint = credential('endpoint') || 'ovh-eu';
    return ENDPOINTS[endpoint] ?? endpoint;
  },
  create({ credential, api }) {
    const anonymous = api(() => ({}));
    // The signature contains the time, which must be that of the service within a minute.
    let delta: number | null = null;
    const calls = api(async ({ method, url, body }) => {
      delta ??= Number((await anonymous.send('GET', '/auth/time')).json) - now();
      const timestamp = String(now() + delta);
      const [secret, consumer] = [credential('application_secret'), credential('consumer_key')];
      const signed = [secret, consumer, method, url.href, body, timestamp].join('+');
      return {
        'x-ovh-application': credential('application_key'),
        'x-ovh-consumer': consumer,
        'x-ovh-timestamp': timestamp,
        'x-ovh-signature': `$1$${createHash('sha1').update(signed).digest('hex')}`,
      };
    });
    const pathOf = (zone: string): string => `/domain/zone/${encodeURIComponent(zone)}`;
    const subDomainOf = ({ relativeName }: ZoneRecord): string =>
      relativeName === '@' ? '' : relativeName;
    const idsOf = async (record: ZoneRecord): Promise<string[]> => {
      const query = `?fieldType=TXT&subDomain=${encodeURIComponent(subDomainOf(record))}`;
      const { json } = await calls.send('GET', `${pathOf(record.zone)}/record${query}`);
      const ids = itemsOf(json).flatMap((id) => textOf(id) ?? []);
      const found: string[] = [];
      for (const id of ids) {
        const known = await calls.find(`${pathOf(record.zone)}/record/${id}`);
        if (unquoted(textOf(memberOf(known, 'target')) ?? '') === record.value) found.push(id);
      }
      return found;
    };
    const refresh = (zone: string) => calls.send('POST', `${pathOf(zone)}/refresh`);
    return {
      async findZone(name) {
        return (await calls.find(pathOf(name))) === null ? null : name;
      },
      async add(record) {
        if ((await idsOf(record)).length > 0) return;
        const { zone, value: target } = record;
        const ttl = Math.max(record.ttlSeconds, MIN_TTL);
        const body = { fieldType: 'TXT', subDomain: subDomainOf(record), target, ttl };
        await calls.send('POST', `${pathOf(zone)}/record`, { body });
        await refresh(zone);
      },
      async remove(record) {
        const ids = await idsOf(record);
        for (const id of ids) {
          await calls.send('DELETE', `${pathOf(record.zone)}/record/${id}`, { accept: [404] });
        }
        if (ids.length > 0) await refresh(record.zone);
      },
    };
  },
};

/** In seconds since 1970. */
function now(): number {
  return Math.floor(Date.now() / 1000);
}

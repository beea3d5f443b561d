import { hash } from 'node:crypto';
import { itemsOf, memberOf, textOf } from './api.ts';
import { type DnsServiceModule, unquoted, type ZoneRecord } from './service.ts';

const ENDPOINTS: Readonly<Record<string, string>> = {
  'ovh-eu': 'https://eu.api.ovh.com/1.0',
  'ovh-ca': 'https://ca.api.ovh.com/1.0',
  'ovh-us': 'https://api.us.ovhcloud.com/1.0',
};

/**
 * OVHcloud API: records with an id each, and a zone that is refreshed after a change. The consumer key needs GET,
 * POST and DELETE on `/domain/zone/*`.
 */
export const ovh: DnsServiceModule = {
  minTtlSeconds: 60,
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
        'x-ovh-signature': `$1$${hash('sha1', signed, 'hex')}`,
      };
    });
    const pathOf = (zone: string): string => `/domain/zone/${encodeURIComponent(zone)}`;
    const subDomainOf = ({ relativeName }: ZoneRecord): string =>
      relativeName === '@' ? '' : relativeName;
    return {
      findZone: (name) => calls.zoneAt(pathOf(name), name),
      async idsOf(record) {
        const query = `?fieldType=TXT&subDomain=${encodeURIComponent(subDomainOf(record))}`;
        const { json } = await calls.send('GET', `${pathOf(record.zone)}/record${query}`);
        const found: string[] = [];
        for (const id of itemsOf(json).flatMap((each) => textOf(each) ?? [])) {
          const known = await calls.find(`${pathOf(record.zone)}/record/${id}`);
          if (unquoted(textOf(memberOf(known, 'target')) ?? '') === record.value) found.push(id);
        }
        return found;
      },
      create(record) {
        const { zone, value: target, ttlSeconds: ttl } = record;
        const body = { fieldType: 'TXT', subDomain: subDomainOf(record), target, ttl };
        return calls.send('POST', `${pathOf(zone)}/record`, { body });
      },
      delete: ({ zone }, id) =>
        calls.send('DELETE', `${pathOf(zone)}/record/${id}`, { accept: [404] }),
      changed: ({ zone }) => calls.send('POST', `${pathOf(zone)}/refresh`),
    };
  },
};

/** In seconds since 1970. */
function now(): number {
  return Math.floor(Date.now() / 1000);
}

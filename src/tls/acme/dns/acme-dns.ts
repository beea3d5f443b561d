import type { AcmeDnsConfig } from '../../../config/dns-challenge.ts';
import { DnsApi } from './services/api.ts';
import type { DnsProvider } from './services/provider.ts';

/**
 * The API of acme-dns (github.com/joohoi/acme-dns, "Update endpoint"). The server keeps only the last two TXT
 * values of a subdomain, so nothing has to be removed.
 */
export function acmeDnsProvider(config: AcmeDnsConfig): DnsProvider {
  const { serverUrl: baseUrl, subdomain } = config;
  return {
    async present({ value }, signal) {
      const [user, key] = [config.username.reveal(), config.password.reveal()];
      const api = new DnsApi({
        ...{ service: 'acme-dns', baseUrl, signal },
        authorize: () => ({ 'x-api-user': user, 'x-api-key': key }),
        secrets: [user, key],
      });
      const body = { subdomain, txt: value };
      const { status } = await api.send('POST', '/update', { body, accept: [401] });
      if (status !== 401) return;
      throw api.error('answers 401: username, password and subdomain do not match');
    },
    async cleanup() {},
  };
}

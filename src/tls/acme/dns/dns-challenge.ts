import type {
  AcmeDnsConfig,
  DnsChallengeConfig,
  DnsProviderConfig,
} from '../../../config/dns-challenge.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { messageOf } from '../../../kernel/error.ts';
import type { Logger } from '../../../kernel/log.ts';
import { execProvider } from './exec.ts';
import { untilPropagated } from './propagation.ts';
import { rfc2136Provider } from './rfc2136.ts';
import { DnsApi } from './services/api.ts';
import { type ChallengeRecord, type DnsProvider, serviceProvider } from './services/provider.ts';

/** Time to remove a record. Only a gateway that is stopping waits for this. */
const CLEANUP_MS = 30_000;

export interface DnsChallengeTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/**
 * Proves control of a name with a TXT record (RFC 8555 §8.4). When this resolves, the record is visible. The
 * returned function removes the record and never rejects, because the certificate may have been issued by
 * then.
 *
 * @param name without `*.`
 * @param value base64url of the digest of the key authorization
 * @throws AcmeError `acme-dns-failed`, or the reason of the signal
 */
export async function publishRecord(
  name: string,
  value: string,
  config: DnsChallengeConfig,
  { clock, log, signal }: DnsChallengeTools,
): Promise<() => Promise<void>> {
  const provider = dnsProvider(config.provider);
  const record: ChallengeRecord = {
    name: (config.overrideDomain ?? `_acme-challenge.${name}`).replace(/\.$/, '').toLowerCase(),
    value,
    ttlSeconds: config.ttlSeconds,
  };
  const withdraw = async (): Promise<void> => {
    try {
      await provider.cleanup(record, AbortSignal.timeout(CLEANUP_MS));
    } catch (error) {
      log.warn('The TXT record of a challenge could not be removed', {
        name: record.name,
        error: messageOf(error),
      });
    }
  };
  try {
    await provider.present(record, signal);
    await untilPropagated(record, config, clock, signal);
    return withdraw;
  } catch (error) {
    // A failed attempt may still have written the record.
    await withdraw();
    throw error;
  }
}

function dnsProvider(config: DnsProviderConfig): DnsProvider {
  switch (config.kind) {
    case 'rfc2136':
      return rfc2136Provider(config);
    case 'acme-dns':
      return acmeDnsProvider(config);
    case 'exec':
      return execProvider(config);
    default:
      return serviceProvider(config);
  }
}

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

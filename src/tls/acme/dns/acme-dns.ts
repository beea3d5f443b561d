import type { AcmeDnsConfig } from '../../../config/dns-challenge.ts';
import { codeOf, messageOf } from '../../../kernel/error.ts';
import { AcmeError } from '../acme-error.ts';
import type { DnsProvider } from './services/provider.ts';

/** Time for one update. */
const UPDATE_MS = 10_000;

/**
 * The API of acme-dns (github.com/joohoi/acme-dns, "Update endpoint"). The server keeps only the last two TXT
 * values of a subdomain, so nothing has to be removed.
 */
export function acmeDnsProvider(config: AcmeDnsConfig): DnsProvider {
  return {
    async present({ value }, signal) {
      const deadline = AbortSignal.any([signal, AbortSignal.timeout(UPDATE_MS)]);
      const status = await send(config, value, deadline).catch((cause: unknown) => {
        signal.throwIfAborted();
        const { cause: inner = cause } = cause instanceof Error ? cause : {};
        const why = deadline.aborted ? 'no answer in time' : (codeOf(inner) ?? messageOf(inner));
        throw failed(`cannot be reached: ${why}`, cause);
      });
      if (status === 200) return;
      const fix = status === 401 ? ': username, password and subdomain do not match' : '';
      throw failed(`answers ${status}${fix}`);
    },
    async cleanup() {},
  };
}

async function send(
  { serverUrl, username, password, subdomain }: AcmeDnsConfig,
  txt: string,
  signal: AbortSignal,
): Promise<number> {
  const response = await fetch(`${serverUrl.replace(/\/+$/, '')}/update`, {
    method: 'POST',
    headers: {
      'x-api-user': username.reveal(),
      'x-api-key': password.reveal(),
      'content-type': 'application/json',
    },
    body: JSON.stringify({ subdomain, txt }),
    // Never followed: the credentials are for this server only.
    redirect: 'error',
    signal,
  });
  await response.body?.cancel();
  return response.status;
}

/** Without the address, which may be secret. */
function failed(message: string, cause?: unknown): AcmeError {
  return new AcmeError('acme-dns-failed', `The acme-dns server ${message}`, { cause });
}

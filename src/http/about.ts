import type { LogFields } from '../kernel/log.ts';
import { withoutSecretParts } from '../kernel/secret.ts';
import type { Exchange } from './exchange.ts';

/** Characters of a host or a path that a line of the log repeats. */
const MAX_SHOWN = 256;

/** Which request a line of the log is about, beside its own fields. The query stays out. */
export function about(
  { host, originalTarget, method, upstream }: Exchange,
  fields: LogFields,
): LogFields {
  const [path = ''] = originalTarget.split('?', 1);
  return {
    method,
    host: host.slice(0, MAX_SHOWN),
    path: withoutSecretParts(path.slice(0, MAX_SHOWN), 'REDACTED'),
    ...(upstream === null ? {} : { upstream: upstream.hostport }),
    ...fields,
  };
}

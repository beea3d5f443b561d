import { parseUrl } from '../kernel/parse-url.ts';
import type { Report } from './problem.ts';
import type { TransportConfig } from './transports.ts';

/** What the options of a transport need of each other. */
export function checkTransport(transport: TransportConfig, report: Report): void {
  if (transport.kind !== 'redis') return;
  const refuse = (code: string, message: string, hint: string, field?: string): void => {
    const where = field === undefined ? {} : { field };
    report(transport, { severity: 'error', code, message, hint }, where);
  };
  const { urls, sentinel, cluster } = transport;
  if (urls.length === 0) {
    refuse('redis-without-url', 'transport redis does not say where', 'add url redis://HOST:6379');
  }
  if (urls.some((url) => !isRedisUrl(url.reveal()))) {
    const hint = 'write redis://HOST:6379, or rediss://HOST:6379 for TLS';
    refuse('bad-redis-url', 'this is not the URL of a Redis server', hint, 'urls');
  }
  if (sentinel !== null && cluster) {
    const message = 'sentinel and cluster are mutually exclusive';
    refuse('mutually-exclusive', message, 'leave one of them out', 'cluster');
  }
  if (urls.length > 1 && sentinel === null && !cluster) {
    const hint = 'add sentinel NAME or cluster, or name one server';
    refuse('several-redis-urls', 'several URLs, but neither sentinels nor a cluster', hint, 'urls');
  }
}

function isRedisUrl(text: string): boolean {
  const url = parseUrl(text);
  if (url === null) return false;
  const { protocol, hostname } = url;
  return (protocol === 'redis:' || protocol === 'rediss:') && hostname !== '';
}

import { isIP } from 'node:net';
import { byKind, list, nullable, object } from '../../../config/shape.ts';
import { defaultDynamic, type DynamicConfig } from '../../../proxy/proxy-config.ts';
import { count, duration, oneOf, text } from '../../../config/shape-values.ts';

const dynamicSettings = {
  name: text('a name in the DNS', isDnsName),
  scheme: oneOf('http', 'https', 'h2c'),
  refreshMs: duration({ min: 1000 }),
  resolvers: list(text('an address such as 10.0.0.53 or 10.0.0.53:5353', isResolver)),
  dialTimeoutMs: duration({ min: 1 }),
  graceMs: nullable(duration()),
};

export const dynamic = byKind<DynamicConfig>({
  a: object(
    {
      ...dynamicSettings,
      port: count({ min: 1, max: 65_535 }),
      versions: list(oneOf('ipv4', 'ipv6'), { min: 1 }),
    },
    { ...defaultDynamic, versions: ['ipv4', 'ipv6'] },
  ),
  srv: object(dynamicSettings, defaultDynamic),
});

/** RFC 2181 §11 allows more, but nobody calls a server so. */
export function isDnsName(text: string): boolean {
  return text.length <= 253 && /^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$/.test(text);
}

export function isResolver(text: string): boolean {
  const [, bracketed, plain, port] = /^(?:\[([^\]]*)\]|([^\]:]*))(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (isIP(text) === 6) return true;
  if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535)) return false;
  return plain === undefined ? isIP(bracketed ?? '') === 6 : isIP(plain) === 4;
}

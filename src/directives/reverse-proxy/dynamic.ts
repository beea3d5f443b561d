import { isIP } from 'node:net';
import {
  badValue,
  choiceOf,
  count,
  duration,
  oneOf,
  optionsOf,
  within,
} from '../../hubfile/values.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { isDnsName, isResolver } from '../../config/dns-challenge.ts';
import { PORT } from '../../config/units.ts';
import { defaultDynamic, type DynamicConfig, dynamicMembers } from '../../proxy/proxy-config.ts';

type Versions = Extract<DynamicConfig, { kind: 'a' }>['versions'];

const BOTH_VERSIONS: Versions = ['ipv4', 'ipv6'];

const NO_SERVICE: Readonly<Record<'service' | 'proto', string | null>> = {
  service: null,
  proto: null,
};

const MIN_REFRESH_MS = 1_000;

/**
 *     dynamic a [<name> <port>] { name; port; versions; … }
 *     dynamic srv [<name>] { service; proto; name; … }
 *
 * The scheme is that of the transport.
 */
export function dynamicUpstreams(cursor: Cursor): DynamicConfig {
  const kind = oneOf(cursor, ['a', 'srv']);
  return kind === 'a' ? byAddresses(cursor) : byServices(cursor);
}

const SHARED = {
  ...optionsOf(dynamicMembers, { name: null, scheme: null, graceMs: 'grace_period' }),
  refresh: (option: Cursor) => ({ refreshMs: refresh(option) }),
  resolvers: (option: Cursor) => ({ resolvers: resolvers(option) }),
};

const UNSUPPORTED = {
  dial_fallback_delay: 'hubgate tries addresses of both versions, as Node does',
};

function byAddresses(cursor: Cursor): DynamicConfig {
  const name = cursor.left > 0 ? dnsName(cursor) : null;
  const port = cursor.left > 0 ? count(cursor, PORT) : null;
  const start = { name, port, versions: BOTH_VERSIONS, ...defaultDynamic };
  const read = cursor.options(
    start,
    {
      ...SHARED,
      name: (option) => ({ name: dnsName(option) }),
      port: (option) => ({ port: count(option, PORT) }),
      versions: (option) => ({ versions: versions(option) }),
    },
    { unsupported: UNSUPPORTED },
  );
  const { name: found, port: given } = read;
  if (found === null || given === null) {
    const hint = 'for example dynamic a app.internal 8080';
    return cursor.fail(cursor.span, 'expected-argument', 'dynamic a needs a name and a port', hint);
  }
  return cursor.origins.of(cursor.span, { ...read, kind: 'a', name: found, port: given });
}

function byServices(cursor: Cursor): DynamicConfig {
  const name = cursor.left > 0 ? dnsName(cursor) : null;
  const start = { name, ...defaultDynamic, ...NO_SERVICE };
  const read = cursor.options(
    start,
    {
      ...SHARED,
      name: (option) => ({ name: dnsName(option) }),
      service: (option) => ({ service: dnsName(option) }),
      proto: (option) => ({ proto: dnsName(option) }),
    },
    { unsupported: UNSUPPORTED },
  );
  const { name: found, service, proto, ...settings } = read;
  if (found === null || (service === null) !== (proto === null)) {
    const message = 'dynamic srv needs a name, and service with proto or neither';
    const hint = 'for example dynamic srv _api._tcp.example.internal';
    return cursor.fail(cursor.span, 'expected-argument', message, hint);
  }
  const full = service === null || proto === null ? found : `_${service}._${proto}.${found}`;
  return cursor.origins.of(cursor.span, { ...settings, kind: 'srv', name: full });
}

function dnsName(option: Cursor): string {
  const word = option.argument('a name in the DNS');
  if (word.text.includes('{')) {
    const hint =
      'the value must be the same for all requests: use {$VAR}, or several handle blocks';
    option.fail(word.span, 'bad-value', `${option.quote(word)} is not a DNS name`, hint);
  }
  return isDnsName(word.text) ? word.text : badValue(option, word, 'a name in the DNS');
}

function refresh(option: Cursor): number {
  return within(option, duration, (ms) => ms >= MIN_REFRESH_MS, 'a duration of at least 1s');
}

function versions(option: Cursor): Versions {
  const words = option.several('ipv4 or ipv6');
  return words.map((word: Word) => choiceOf(option, word, BOTH_VERSIONS));
}

/** In the format of `node:dns`. */
function resolvers(option: Cursor): readonly string[] {
  return option.several('the address of a name server').map((word) => {
    const address = word.text.replace(/^udp\//, '');
    if (!isResolver(address)) return badValue(option, word, 'an address such as 10.0.0.53');
    return isIP(address) === 6 ? `[${address}]` : address;
  });
}

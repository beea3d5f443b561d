import {
  type RedisTransportConfig,
  TRANSPORT_KINDS,
  type TransportConfig,
  transportKinds,
} from '../../config/transports.ts';
import { Secret } from '../../kernel/secret.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { choiceOf, count, oneOf, optionsOf } from '../../hubfile/values.ts';

/** Transports of other hubs, and the closest equivalents. */
const INSTEAD: Readonly<Record<string, string>> = { bolt: 'lmdb', local: 'memory' };

/** `transport <kind> { … }`; the usage of `hub` lists the options of each kind. */
export function transport(cursor: Cursor): TransportConfig {
  const word = cursor.argument(`one of ${TRANSPORT_KINDS.join(', ')}`);
  const instead = Object.hasOwn(INSTEAD, word.text) ? INSTEAD[word.text] : undefined;
  if (instead !== undefined) {
    const message = `transport ${word.text} is not supported by hubgate`;
    cursor.fail(word.span, 'unsupported-transport', message, `use transport ${instead}`);
  }
  switch (choiceOf(cursor, word, TRANSPORT_KINDS)) {
    case 'memory':
      return cursor.options(memory.defaults, optionsOf(memory.members));
    case 'lmdb':
      return cursor.options(lmdb.defaults, optionsOf(lmdb.members));
    case 'redis':
      return cursor.options(redis.defaults, REDIS_OPTIONS);
    case 'postgres':
      return cursor.options(postgres.defaults, optionsOf(postgres.members, SERVER_WORDS));
  }
}

const { memory, lmdb, redis, postgres } = transportKinds;
const SERVER_WORDS = { trustPoolFile: 'tls_trust_pool' };

const REDIS_OPTIONS: OptionTable<RedisTransportConfig> = {
  url: redisUrls,
  urls: redisUrls,
  ...optionsOf(redis.members, { ...SERVER_WORDS, urls: null, replicas: 'durability' }),
  durability: (cursor) => ({ replicas: replicas(cursor) }),
};

/** `url` and `urls` are one option. */
function redisUrls(
  cursor: Cursor,
  { urls }: RedisTransportConfig,
): Pick<RedisTransportConfig, 'urls'> {
  if (urls.length > 0) {
    cursor.fail(cursor.span, 'mutually-exclusive', 'url and urls are mutually exclusive');
  }
  const words = cursor.several('a URL such as redis://127.0.0.1:6379');
  return { urls: words.map(({ text }) => new Secret(text)) };
}

/** `primary` is 0, `replicated <n>` is n. */
function replicas(cursor: Cursor): number {
  return oneOf(cursor, ['primary', 'replicated']) === 'primary' ? 0 : count(cursor, { min: 1 });
}

import { error } from '../config/problem.ts';
import {
  defaultsOf,
  list as listShape,
  object,
  type Of,
  optional,
  withDefault,
} from '../config/shape.ts';
import { duration, size, text } from '../config/shape-values.ts';
import { ResponseCache } from '../cache/response-cache.ts';
import { oneStep } from '../hubfile/scope.ts';
import { optionsOf, texts } from '../hubfile/values.ts';
import { appendToLog } from '../site/access-log.ts';
import type { HandlerDirective } from './directive.ts';

const MIB = 1024 * 1024;
const STANDARD_MAX_BODY = 8 * MIB;

const members = {
  /** How long a response without a time is fresh; null: it is not stored. */
  ttlMs: optional(duration({ min: 1 })),
  /** How long a stale response may be used if the app does not say. */
  staleMs: withDefault(duration(), 0),
  /** Maximum memory of the stored responses, in bytes. */
  maxSize: withDefault(size({ min: 1 }), 64 * MIB),
  /** Maximum size of one body, in bytes; null: 8 MiB, or `maxSize` if that is less. */
  maxBody: optional(size({ min: 1 })),
  /** Values with placeholders. Requests with different values share nothing. */
  varyOn: withDefault(listShape(text('a text such as {cookie.lang}')), []),
};

export interface CacheConfig extends Of<typeof members> {
  readonly kind: 'cache';
}

const USAGE = `
cache [<matcher>] {
    ttl <duration>
    stale <duration>
    max_size <size>
    max_body <size>
    vary_on <text…>
}
`;

const KEY = 'the key is scheme, host, path, query and the fields of Vary; add to it with vary_on';
const MEMORY = 'responses are stored in memory, up to max_size';
const PURGE =
  'an update purges what it names; you can also use hubgate cache purge or POST /cache/purge';

export const cache: HandlerDirective<CacheConfig> = {
  data: {
    shape: () => object(members),
    check(cache, report) {
      if (cache.maxBody === null || cache.maxBody <= cache.maxSize) return;
      const message = 'max_body is more than max_size: a body of that size cannot be stored';
      report(cache, error('body-beyond-size', message));
    },
  },
  syntax: {
    usage: USAGE,
    summary: 'stores responses while they are fresh, and purges those that an update names',
    after: 'request_header',
    read: oneStep((cursor) => {
      const start: CacheConfig = { kind: 'cache', ...defaultsOf(members) };
      return cursor.options(
        start,
        {
          ...optionsOf(members),
          vary_on: (option, { varyOn }) => ({
            varyOn: [...varyOn, ...texts(option, 'a text such as {cookie.lang}')],
          }),
        },
        {
          repeatable: ['vary_on'],
          unsupported: {
            allowed_http_verbs: 'responses to GET and HEAD are stored (RFC 9111)',
            allowed_additional_status_codes:
              'the app decides with Cache-Control, whatever the status',
            api: PURGE,
            badger: MEMORY,
            cache_keys: KEY,
            cache_name: 'the name in Cache-Status is always hubgate',
            cdn: PURGE,
            default_cache_control: 'use ttl, or header ?Cache-Control in the route',
            disable_coalescing: 'a request waits only for a response that it can share',
            etcd: MEMORY,
            headers: 'use vary_on {header.NAME}',
            key: KEY,
            max_cacheable_body_bytes: 'use max_body',
            log_level: 'use the global option log',
            mode: 'the cache follows RFC 9111',
            nats: MEMORY,
            nuts: MEMORY,
            olric: MEMORY,
            otter: MEMORY,
            redis: MEMORY,
            regex: 'use a matcher: cache @notAdmin',
            simplefs: MEMORY,
            storers: MEMORY,
            surrogate_keys: 'let the app send Surrogate-Key, Cache-Tags or xkey',
            timeout: 'use transport { response_header_timeout } of reverse_proxy',
          },
        },
      );
    }),
  },
  compile(config, context) {
    const { clock, scheduler, expand, caching } = context;
    const maxBody = config.maxBody ?? Math.min(STANDARD_MAX_BODY, config.maxSize);
    const cache = new ResponseCache({
      settings: { ...config, maxBody },
      ...caching,
      store: caching.openStore(config, config.maxSize),
      memory: context.bodyMemory,
      scheduler,
      clock,
      expand,
      note: (exchange, outcome) => appendToLog(exchange, 'hubgate.cache', outcome),
    });
    return (exchange, next) => {
      if (exchange.variables.has(SEEN) || caching.isHubRequest(exchange)) return next();
      exchange.variables.set(SEEN, '');
      return cache.handle(exchange, next);
    };
  },
};

/** Marks requests that a cache has handled: only the first matching cache handles a request. */
const SEEN = 'hubgate.cache';

// Upstreams whose addresses contain placeholders of the request. A request must not choose where the gateway
// connects, so each result is compared with `upstreams_allow`, and a file without that option is refused.

import { isIP } from 'node:net';
import { isAddressRange } from '../../config/well-formed.ts';
import type { Exchange, Expand, Handler } from '../../http/exchange.ts';
import { HttpError } from '../../http/errors.ts';
import { addressSet } from '../../http/forwarded.ts';
import { parseUpstream } from '../../proxy/address.ts';
import type { ReverseProxyConfig } from '../../proxy/proxy-config.ts';
import type { ReverseProxy } from '../../proxy/reverse-proxy.ts';

/** Proxies of one directive that are kept. Beyond this limit, the least recently used one is closed. */
export const MAX_REQUEST_UPSTREAMS = 256;

const ADDRESS =
  /^(?:(?:https?|h2c):\/\/)?(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?)(?::\d{1,5})?$/i;

/** Whether the address of an upstream depends on the request. */
export function hasRequestPlaceholder(upstream: string): boolean {
  return /\{(?!(?:env|file)\.)[^{}]+\}/.test(upstream);
}

type Allows = (hostname: string, port: number) => boolean;

function compileAllowed(words: readonly string[]): Allows {
  const inRange = addressSet(words.filter(isAddressRange));
  const names = words
    .filter((word) => !isAddressRange(word))
    .map((word) => {
      const [host = '', port] = word.toLowerCase().split(':', 2);
      return { host, port: port === undefined ? null : Number(port) };
    });
  return (hostname, port) => {
    if (isIP(hostname) !== 0 && inRange(hostname)) return true;
    const name = hostname.toLowerCase().replace(/\.$/, '');
    return names.some(({ host, port: only }) => {
      if (only !== null && only !== port) return false;
      return host.startsWith('*.') ? name.endsWith(host.slice(1)) : name === host;
    });
  };
}

/** A `reverse_proxy` whose upstreams depend on the request, with a proxy for each resulting list. */
export class RequestUpstreams {
  readonly #templates: readonly string[];
  readonly #allows: Allows;
  readonly #expand: Expand;
  readonly #make: (origins: readonly string[]) => ReverseProxy;
  readonly #proxies = new Map<string, ReverseProxy>();
  #isClosed = false;

  constructor(
    { upstreams, upstreamsAllow }: ReverseProxyConfig,
    expand: Expand,
    make: (origins: readonly string[]) => ReverseProxy,
  ) {
    this.#templates = upstreams;
    this.#allows = compileAllowed(upstreamsAllow);
    this.#expand = expand;
    this.#make = make;
  }

  /** @throws HttpError 502 if the result is not a valid upstream or not allowed; what the proxy throws */
  readonly handle: Handler = (exchange, next) => {
    const origins = this.#templates.map((template) => this.#origin(template, exchange));
    const proxy = this.#proxyTo(origins);
    try {
      return proxy.handle(exchange, next);
    } finally {
      // The request came before a reload, and waited in an earlier directive.
      if (this.#isClosed) this.close();
    }
  };

  close(): void {
    this.#isClosed = true;
    for (const proxy of this.#proxies.values()) proxy.close();
    this.#proxies.clear();
  }

  #origin(template: string, exchange: Exchange): string {
    const [, scheme = 'http', address = ''] = /^([a-z0-9]+):\/\/(.*)$/s.exec(template) ?? [];
    const named = this.#expand(address, exchange);
    if (!ADDRESS.test(named)) throw new HttpError(502, 'the request names no upstream');
    const origin = named.includes('://') ? named : `${scheme}://${named}`;
    const { hostname, port } = parseUpstream(origin);
    if (!this.#allows(hostname, port)) {
      throw new HttpError(502, `upstreams_allow does not have ${hostname}:${port}`);
    }
    return origin;
  }

  #proxyTo(origins: readonly string[]): ReverseProxy {
    const key = origins.join(' ');
    const known = this.#proxies.get(key);
    const proxy = known ?? this.#make(origins);
    // The newest is the last.
    this.#proxies.delete(key);
    this.#proxies.set(key, proxy);
    if (this.#proxies.size > MAX_REQUEST_UPSTREAMS) {
      const [oldest] = this.#proxies;
      if (oldest !== undefined) {
        this.#proxies.delete(oldest[0]);
        oldest[1].close();
      }
    }
    return proxy;
  }
}

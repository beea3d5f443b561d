import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  MAX_REQUEST_UPSTREAMS,
  RequestUpstreams,
} from '../../../src/directives/reverse-proxy/request-upstreams.ts';
import { HttpError } from '../../../src/http/errors.ts';
import { defaultReverseProxy } from '../../../src/proxy/proxy-config.ts';
import type { ReverseProxy } from '../../../src/proxy/reverse-proxy.ts';
import { expandPlaceholders } from '../../../src/site/placeholders.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

/** Proxies that only tell what becomes of them. */
function proxiesFor(upstream: string, upstreamsAllow: readonly string[]) {
  const made: string[] = [];
  const closed: string[] = [];
  const config = { ...defaultReverseProxy, upstreams: [upstream], upstreamsAllow };
  const make = ([origin = '']: readonly string[]): ReverseProxy => {
    made.push(origin);
    // Of a proxy nothing else is used here.
    return { handle: () => {}, close: () => void closed.push(origin) } as unknown as ReverseProxy;
  };
  const proxies = new RequestUpstreams(config, expandPlaceholders, make);
  const ask = (value: string): void => {
    const exchange = fakeExchange({ target: `/?to=${encodeURIComponent(value)}` });
    void proxies.handle(exchange, () => {});
  };
  return { ask, made, closed, proxies };
}

const refused = (error: unknown): boolean => error instanceof HttpError && error.status === 502;

describe('upstreams that a request names', () => {
  it('are limited to those that the file allows, by name, domain, port and range', () => {
    const { ask, made } = proxiesFor('http://{query.to}', [
      'app.internal:8080',
      '*.svc.internal',
      '10.0.0.0/8',
    ]);
    for (const one of ['app.internal:8080', 'A.svc.internal', '10.1.2.3:81']) ask(one);
    assert.deepEqual(made, [
      'http://app.internal:8080',
      'http://A.svc.internal',
      'http://10.1.2.3:81',
    ]);
    for (const one of [
      'app.internal:81',
      'svc.internal',
      'evil.example',
      '169.254.169.254',
      '127.0.0.1',
      '10.0.0.1.evil.example',
      'evil.example/.svc.internal',
      'evil.example#.svc.internal',
      'user@10.0.0.1',
      'unix//run/docker.sock',
      '2130706433',
      '0x0a.0.0.1.evil.example',
      '',
    ]) {
      assert.throws(() => ask(one), refused, one);
    }
    assert.equal(made.length, 3);
  });

  it('are kept for the next request, up to a limit', () => {
    const { ask, made, closed, proxies } = proxiesFor('http://10.0.0.1:{query.to}', ['10.0.0.1']);
    for (let port = 1; port <= MAX_REQUEST_UPSTREAMS; port += 1) ask(String(port));
    ask('1');
    assert.equal(made.length, MAX_REQUEST_UPSTREAMS);
    ask('1000');
    assert.deepEqual(closed, ['http://10.0.0.1:2']);
    proxies.close();
    assert.equal(closed.length, MAX_REQUEST_UPSTREAMS + 1);
  });

  it('are given back after a request that comes to them only after the reload', () => {
    const { ask, made, closed, proxies } = proxiesFor('http://10.0.0.1:{query.to}', ['10.0.0.1']);
    proxies.close();
    ask('1');
    assert.deepEqual(made, ['http://10.0.0.1:1']);
    assert.deepEqual(closed, made);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createSiteRouter } from '../../../src/site/site.ts';

const site = (
  name: string,
  host: string,
  scheme: 'http' | 'https' = 'https',
  port: number | null = null,
) => ({
  addresses: [{ scheme, host, port }],
  site: name,
});
const sites = [
  site('any', ''),
  site('wild', '*.example.com'),
  site('exact', 'www.example.com'),
  site('six', '2001:db8::1'),
  site('plain', 'www.example.com', 'http'),
  site('other port', 'www.example.com', 'https', 8443),
];
const defaultPorts = { http: 80, https: 443 };

describe('the site for a request (hubfile.md §1)', () => {
  const route = createSiteRouter(sites, { scheme: 'https', port: 443, defaultPorts });
  for (const [host, expected] of [
    ['www.example.com', 'exact'],
    ['WWW.Example.COM.', 'exact'],
    ['www.example.com:443', 'exact'],
    ['api.example.com', 'wild'],
    ['a.b.example.com', 'any'],
    ['example.com', 'any'],
    ['[2001:DB8::1]:443', 'six'],
    ['', 'any'],
    ['localhost', 'any'],
  ] as const) {
    it(`to ${host || 'an empty host'} is ${expected}`, () => {
      assert.equal(route(host), expected);
    });
  }

  it('depends on the scheme and port of the listener', () => {
    const plain = createSiteRouter(sites, { scheme: 'http', port: 80, defaultPorts });
    assert.equal(plain('www.example.com'), 'plain');
    assert.equal(plain('api.example.com'), undefined);
    const other = createSiteRouter(sites, { scheme: 'https', port: 8443, defaultPorts });
    assert.equal(other('www.example.com'), 'other port');
    assert.equal(other('localhost'), undefined);
  });
});

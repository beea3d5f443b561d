import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Config } from '../../../src/config/config.ts';
import { decodeEncoded, encodeConfig } from '../../../src/config/serialize.ts';
import { registry } from '../../../src/directives/registry.ts';
import { codeOf } from '../../../src/kernel/error.ts';
import { loadConfig } from '../../../src/load-config.ts';

function load(file: string, text: string): Config {
  const env = { STATUS: '404', LATE: '604' };
  const read = (path: string) => Buffer.from(path.endsWith('cookie') ? 'session' : text);
  return loadConfig(file, { read, glob: () => [], env }).config;
}

const inHubfile = (line: string) => (): Config => load('Hubfile', `http://:8080 {\n${line}\n}\n`);
const inJson = (handler: object) => (): Config => {
  const site = { addresses: [{ scheme: 'http', host: '', port: 8080 }], routes: [{ handler }] };
  return load('hubgate.json', JSON.stringify({ sites: [site] }));
};

const isConfigError = (thrown: unknown): boolean => codeOf(thrown) === 'invalid-config';

describe('a rule of a value', () => {
  for (const kind of ['method', 'query', 'cookie']) {
    it(`refuses an empty name in every notation: ${kind}`, () => {
      const line = (name: string): string =>
        kind === 'method'
          ? `method "${name}"`
          : `reverse_proxy localhost:1 {\nlb_policy ${kind} "${name}"\n}`;
      const handler = (name: string): object =>
        kind === 'method'
          ? { kind, method: name }
          : {
              kind: 'reverse_proxy',
              upstreams: ['http://localhost:1'],
              loadBalancing: { policy: { kind, name } },
            };
      assert.doesNotThrow(inHubfile(line('a')));
      assert.doesNotThrow(inJson(handler('a')));
      assert.throws(inHubfile(line('')), isConfigError);
      assert.throws(inJson(handler('')), isConfigError);
    });
  }

  it('takes the name of a cookie from a file in a Hubfile too', () => {
    const hub =
      'hub {\nanonymous\nissuer https://a.example {\npublisher {\njwt 0123456789abcdef0123456789abcdef\n}\n}\ncookie_name {file./run/cookie}\n}';
    assert.doesNotThrow(inHubfile(hub));
  });

  it('takes a status from a variable in every notation, and for workers', () => {
    const respond = (status: string): object => ({ kind: 'respond', status, body: '' });
    for (const read of [inHubfile('respond "" {env.STATUS}'), inJson(respond('{env.STATUS}'))]) {
      const config = read();
      const sent = encodeConfig(config, registry, { showSecrets: true, brief: false });
      assert.deepEqual(decodeEncoded(sent, registry), config);
    }
    assert.throws(inHubfile('respond "" {env.LATE}'), isConfigError);
    assert.throws(inJson(respond('{env.LATE}')), isConfigError);
  });

  it('refuses name servers and names in the DNS alike in reverse_proxy and in tls', () => {
    const proxy = (option: string): string =>
      `reverse_proxy {\ndynamic a {\nname app.internal\nport 80\n${option}\n}\n}`;
    assert.doesNotThrow(inHubfile(proxy('resolvers 192.0.2.53:5353 [2001:db8::53]')));
    assert.throws(inHubfile(proxy('resolvers ns.example')), isConfigError);
    assert.throws(inHubfile('reverse_proxy {\ndynamic a -a.internal 80\n}'), isConfigError);
  });
});

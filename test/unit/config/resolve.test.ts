import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import type { Config, KeySource, SiteConfig } from '../../../src/config/config.ts';
import { defaultSite } from '../../../src/config/shape-config.ts';
import { defaultHub } from '../../../src/config/shape-hub.ts';
import { defaultOptions } from '../../../src/config/shape-options.ts';
import type { UnplacedProblem } from '../../../src/config/problem.ts';
import { resolvePlaceholders } from '../../../src/config/resolve.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { parseExpression } from '../../../src/matchers/expression/program.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

const files: Record<string, string> = {
  '/etc/hubgate/key': 'secret-of-a-file\n',
  '/run/other': 'two\n\n',
};

function resolve(config: Config, env: Record<string, string> = {}) {
  const findings: { about: object | null; finding: UnplacedProblem }[] = [];
  const resolved = resolvePlaceholders(config, {
    env,
    directory: '/etc/hubgate',
    readFile: (path) => {
      const text = files[path];
      if (text === undefined) throw Object.assign(new Error(`ENOENT ${path}`), { code: 'ENOENT' });
      return Buffer.from(text);
    },
    report: (about, finding) => findings.push({ about, finding }),
  });
  return { ...resolved, findings };
}

function siteThatAnswers(body: string): SiteConfig {
  const handler = { kind: 'respond', status: 200, body, close: false } as const;
  return { ...defaultSite, routes: [{ matcher: null, handler }] };
}

function bodyOf(config: Config): string | undefined {
  const handler = config.sites[0]?.routes[0]?.handler;
  return handler?.kind === 'respond' ? handler.body : undefined;
}

function withPublisher(source: KeySource): Config {
  const issuer = { id: 'i', authorizationServer: false, publisher: source, subscriber: null };
  const hub = { ...defaultHub, issuers: [issuer] };
  return { options: defaultOptions, sites: [{ ...defaultSite, hub }] };
}

function publisherOf(config: Config): KeySource | null | undefined {
  return config.sites[0]?.hub?.issuers[0]?.publisher;
}

describe('resolvePlaceholders (Hubfile §1)', () => {
  it('replaces {env.X} and {file.X} within text, once', () => {
    const site = siteThatAnswers('<{env.A}{env.UNSET}{file.key}> {host}');
    const config = { options: defaultOptions, sites: [site] };
    const { config: resolved } = resolve(config, { A: '{env.B}', B: 'no' });
    assert.equal(bodyOf(resolved), '<{env.B}secret-of-a-file> {host}');
  });

  it('replaces it in a key once, too', () => {
    const written = { kind: 'jwt', key: new Secret('{env.A}'), algorithm: '{env.A}' } as const;
    const { config } = resolve(withPublisher(written), { A: '{env.B}', B: 'no' });
    const source = publisherOf(config);
    assert.ok(source?.kind === 'jwt');
    assert.deepEqual([source.key.reveal(), source.algorithm], ['{env.B}', '{env.B}']);
  });

  it('makes a value a text in an expression, never code', () => {
    const value = `a" || 'b' == 'b' || "\\\n`;
    const holds = (expression: string, env = value): unknown => {
      const handler = { kind: 'respond', status: 200, body: '', close: false } as const;
      const matcher = [{ kind: 'expression', expression } as const];
      const site = { ...defaultSite, routes: [{ matcher, handler }] };
      const { config } = resolve({ options: defaultOptions, sites: [site] }, { A: env });
      const [condition] = config.sites[0]?.routes[0]?.matcher ?? [];
      assert.ok(condition?.kind === 'expression');
      const exchange = fakeExchange({ target: '/?same=' + encodeURIComponent(env) });
      return parseExpression(condition.expression).holds(exchange, new Map());
    };
    for (const yes of [
      '{query.same} == {env.A}',
      '{env.A} == {query.same} && {env.A} != "a"',
      `{query.same} == '{env.A}'`,
      '"<" + {query.same} + ">" == "<{env.A}>"',
    ]) {
      assert.equal(holds(yes), true, yes);
    }
    for (const yes of [
      `{query.same} == r"{env.A}"`,
      `{query.same} == R'''{env.A}'''`,
      '{query.same} == """{env.A}"""',
    ]) {
      assert.equal(holds(yes), true, yes);
    }
    assert.equal(holds('{query.same}.matches(r"^{env.A}\\d$")', '1'), false);
    assert.equal(holds('"/w/1".matches(r"{env.A}\\d$")', '^/w/'), true);
    assert.equal(holds('{query.same} == "x{env.A}"'), false);
    assert.equal(holds('{env.A} > 4 && {env.A} == "5"', '5'), true);
    assert.equal(holds('{env.A} == true', 'true'), true);
  });

  it('leaves an escaped brace alone', () => {
    const config = { options: defaultOptions, sites: [siteThatAnswers('\\{env.A}')] };
    assert.equal(bodyOf(resolve(config, { A: 'x' }).config), '\\{env.A}');
  });

  it('resolves relative paths from the directory of the Hubfile and drops one newline', () => {
    const sites = [siteThatAnswers('{file./run/other}|{file.key}')];
    const { config, files: read } = resolve({ options: defaultOptions, sites });
    assert.equal(bodyOf(config), 'two\n|secret-of-a-file');
    assert.deepEqual(read, ['/run/other', '/etc/hubgate/key']);
  });

  it('reports a file that it cannot read, at the part that names it', () => {
    const config = { options: defaultOptions, sites: [siteThatAnswers('{file.missing}')] };
    const { findings, files: read } = resolve(config);
    assert.equal(findings.length, 1);
    assert.equal(findings[0]?.finding.code, 'unreadable-file');
    assert.equal(findings[0]?.about, config.sites[0]?.routes[0]?.handler);
    assert.deepEqual(read, ['/etc/hubgate/missing'], 'it is watched all the same');
  });

  it('knows the source of each changed part, and keeps the other parts', () => {
    const config = {
      options: defaultOptions,
      sites: [siteThatAnswers('{env.A}'), siteThatAnswers('plain')],
    };
    const { config: resolved, originOf } = resolve(config, { A: 'x' });
    const [changed, same] = resolved.sites;
    assert.ok(changed !== undefined && same !== undefined);
    assert.equal(originOf(changed), config.sites[0]);
    assert.equal(originOf(changed.routes), config.sites[0]?.routes);
    assert.equal(same, config.sites[1]);
    assert.equal(resolved.options, config.options);
    assert.ok(Object.isFrozen(changed));
  });

  it('reads secrets without ever displaying them', () => {
    const key = new Secret('{file.key}');
    const { config } = resolve(withPublisher({ kind: 'jwt', key, algorithm: '{env.ALG}' }), {
      ALG: 'HS384',
    });
    const source = publisherOf(config);
    assert.ok(source?.kind === 'jwt');
    assert.equal(source.key.reveal(), 'secret-of-a-file');
    assert.equal(source.algorithm, 'HS384');
    assert.doesNotMatch(inspect(config, { depth: null }) + JSON.stringify(config), /secret-of/);
  });

  it('treats a key from an unset variable as not configured, with a warning (H-493)', () => {
    const config = withPublisher({
      kind: 'jwt',
      key: new Secret('{env.KEY}'),
      algorithm: null,
    });
    const { config: resolved, findings } = resolve(config);
    assert.equal(publisherOf(resolved), null);
    assert.equal(findings[0]?.finding.severity, 'warning');
    assert.match(findings[0]?.finding.message ?? '', /variable KEY is not set/);
    assert.equal(findings[0]?.about, publisherOf(config));
  });

  it('treats an algorithm from an unset variable as not given (H-513)', () => {
    const key = new Secret('a-secret');
    const source = publisherOf(
      resolve(withPublisher({ kind: 'jwt', key, algorithm: '{env.ALG}' })).config,
    );
    assert.ok(source?.kind === 'jwt');
    assert.equal(source.algorithm, null);
  });

  it('reports a variable that is not set once, where it is first used', () => {
    const site = siteThatAnswers('{env.UNSET} {env.UNSET} {env.EMPTY}');
    const config = { options: defaultOptions, sites: [site, siteThatAnswers('{env.UNSET}')] };
    const { findings } = resolve(config, { EMPTY: '' });
    assert.deepEqual(
      findings.map(({ about, finding: { code, message } }) => [about, code, message]),
      [[site.routes[0]?.handler, 'unset-variable', 'the environment variable UNSET is not set']],
    );
  });

  it('does not read inherited members as variables', () => {
    const config = { options: defaultOptions, sites: [siteThatAnswers('[{env.constructor}]')] };
    assert.equal(bodyOf(resolve(config).config), '[]');
  });
});

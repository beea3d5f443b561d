import { directiveTable } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ConfigError } from '../../../src/config/problem.ts';
import { diskIo, findFiles } from '../../../src/hubfile/disk.ts';
import { inDocumentedOrder, type OrderedStep } from '../../../src/hubfile/directive-table.ts';
import { load } from '../../../src/hubfile/load.ts';
import type { RequestMatcher, RouteConfig } from '../../../src/config/routes.ts';

const HUBFILE = `import conf.d/*.conf

example.com {
	hub {
		issuer https://example.com {
			publisher {
				jwt {env.KEY}
			}
		}
		cors_origins https://a.example
		resource_identifier https://example.com/hub
		anonymous
	}
}
`;

/** A directory with files, gone when the test ends. */
function directory(t: TestContext, files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'hubfile-'));
  t.after(() => rmSync(root, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

describe('load', () => {
  it('returns the files that were read and the patterns to watch', (t) => {
    const root = directory(t, {
      Hubfile: HUBFILE,
      'conf.d/b.conf': 'b.example {\n}\n',
      'conf.d/a.conf': 'a.example {\n}\n',
      'conf.d/.hidden.conf': 'hidden.example {\n}\n',
    });
    const loaded = load(join(root, 'Hubfile'), diskIo({}), directiveTable);
    assert.deepEqual(loaded.files, [
      join(root, 'Hubfile'),
      join(root, 'conf.d/a.conf'),
      join(root, 'conf.d/b.conf'),
    ]);
    assert.deepEqual(loaded.globs, [join(root, 'conf.d/*.conf')]);
    assert.deepEqual(
      loaded.config.sites.map((site) => site.addresses[0]?.host),
      ['a.example', 'b.example', 'example.com'],
    );
  });

  it('records where objects, lists and fields of the configuration were written', (t) => {
    const root = directory(t, { Hubfile: HUBFILE });
    const loaded = load(join(root, 'Hubfile'), diskIo({}), directiveTable);
    const site = loaded.config.sites[0];
    const hub = site?.hub;
    assert.ok(site !== undefined && hub !== null && hub !== undefined);
    const issuer = hub.issuers[0];
    assert.ok(issuer?.publisher !== null && issuer !== undefined);
    assert.equal(loaded.placeOf(site)?.line, 3);
    assert.equal(loaded.placeOf(hub)?.line, 4);
    assert.equal(loaded.placeOf(issuer)?.line, 5);
    assert.equal(loaded.placeOf(issuer.publisher)?.line, 7);
    assert.equal(loaded.placeOf(hub.corsOrigins)?.line, 10);
    assert.equal(loaded.placeOf(hub, 'resourceIdentifier')?.line, 11);
    assert.equal(loaded.placeOf(hub, 'cookieName')?.line, 4, 'a default is placed at its owner');
    assert.equal(loaded.placeOf({}), undefined);
  });

  it('reports a problem with its place, an excerpt, and the place of what it conflicts with', (t) => {
    const root = directory(t, { Hubfile: HUBFILE });
    const file = join(root, 'Hubfile');
    const loaded = load(file, diskIo({}), directiveTable);
    const hub = loaded.config.sites[0]?.hub;
    assert.ok(hub !== null && hub !== undefined);
    const problem = loaded.problemAt(
      hub,
      { severity: 'error', code: 'test', message: 'it clashes' },
      { field: 'resourceIdentifier', other: hub.corsOrigins },
    );
    assert.equal(problem.message, `it clashes; the other is at ${file}:10:3`);
    assert.deepEqual(problem.place, { file, line: 11, column: 3 });
    assert.equal(
      problem.excerpt,
      '    resource_identifier https://example.com/hub\n    ^^^^^^^^^^^^^^^^^^^',
    );
  });

  it('freezes the configuration', (t) => {
    const root = directory(t, { Hubfile: HUBFILE });
    const { config } = load(join(root, 'Hubfile'), diskIo({}), directiveTable);
    assert.ok(Object.isFrozen(config) && Object.isFrozen(config.sites[0]?.hub?.issuers));
  });

  it('refuses a file that does not exist', () => {
    assert.throws(
      () => load('/nowhere/Hubfile', diskIo({}), directiveTable),
      (thrown) => {
        assert.ok(thrown instanceof ConfigError);
        assert.equal(thrown.code, 'invalid-config');
        assert.match(thrown.message, /cannot read \/nowhere\/Hubfile: the file does not exist/);
        return true;
      },
    );
  });

  it('reports an error behind any number of warnings, and a limited number of each', (t) => {
    const site = (port: number, line: string): string =>
      `http://localhost:${port} {\n\t${line}\n}\n`;
    const many = (line: string): string =>
      Array.from({ length: 300 }, (_, each) => site(20_000 + each, line)).join('');
    const problemsOf = (Hubfile: string): readonly string[] => {
      const file = join(directory(t, { Hubfile }), 'Hubfile');
      try {
        load(file, diskIo({}), directiveTable);
      } catch (error) {
        assert.ok(error instanceof ConfigError);
        return error.problems.map(({ severity, code }) => `${severity} ${code}`);
      }
      return [];
    };
    const warned = problemsOf(many('respond "{$UNSET}"') + site(30_000, 'basicauth_ /admin'));
    assert.equal(warned.length, 200 + 1);
    assert.equal(warned.at(-1), 'error unknown-directive');
    assert.equal(problemsOf(many('unknown')).length, 200);
  });

  it('orders problems by their position in the text and never shows a key', (t) => {
    const text = HUBFILE.replace('{env.KEY}', 'a-very-secret-value XX x').replace(
      'anonymous',
      'anon',
    );
    const root = directory(t, { Hubfile: text });
    try {
      load(join(root, 'Hubfile'), diskIo({}), directiveTable);
      assert.fail('it was accepted');
    } catch (thrown) {
      assert.ok(thrown instanceof ConfigError);
      const lines = thrown.problems
        .filter(({ severity }) => severity === 'error')
        .map(({ place }) => place?.line);
      assert.deepEqual(lines, [7, 12]);
      assert.doesNotMatch(JSON.stringify(thrown.problems) + thrown.stack, /a-very-secret/);
    }
  });
});

describe('findFiles', () => {
  it('matches * and ? within one segment, sorted, without hidden files', (t) => {
    const root = directory(t, { 'x/b.c': '', 'x/a.c': '', 'x/ab.c': '', 'x/.c': '', 'y/a.c': '' });
    const find = (pattern: string) =>
      findFiles(join(root, pattern)).map((path) => path.slice(root.length + 1));
    assert.deepEqual(find('x/*.c'), ['x/a.c', 'x/ab.c', 'x/b.c']);
    assert.deepEqual(find('x/?.c'), ['x/a.c', 'x/b.c']);
    assert.deepEqual(find('*/a.c'), ['x/a.c', 'y/a.c']);
    assert.deepEqual(find('x/.*'), ['x/.c']);
    assert.deepEqual(find('none/*.c'), []);
  });

  it('takes ** for a directory and everything below it, without hidden entries and links', (t) => {
    const files = { 'x/a.c': '', 'x/y/z/b.c': '', 'x/.h/c.c': '', 'other/d.c': '', 'x/y/e.d': '' };
    const root = directory(t, files);
    symlinkSync(join(root, 'other'), join(root, 'x/link'));
    symlinkSync(join(root, 'x'), join(root, 'x/y/round'));
    const find = (pattern: string) =>
      findFiles(join(root, pattern)).map((path) => path.slice(root.length + 1));
    assert.deepEqual(find('x/**/*.c'), ['x/a.c', 'x/y/z/b.c']);
    assert.deepEqual(find('**/e.d'), ['x/y/e.d']);
    assert.deepEqual(find('x/**'), ['x', 'x/y', 'x/y/z']);
    assert.deepEqual(diskIo({}).glob(join(root, 'x/y/**/*')), [
      join(root, 'x/y/e.d'),
      join(root, 'x/y/z/b.c'),
    ]);
  });

  it('visits at most 10,000 directories for **', (t) => {
    const root = directory(t, { Hubfile: 'import deep/**\n' });
    for (let i = 0; i <= 100; i += 1) {
      for (let k = 0; k < 100; k += 1) mkdirSync(join(root, `deep/${i}/${k}`), { recursive: true });
    }
    assert.throws(
      () => load(join(root, 'Hubfile'), diskIo({}), directiveTable),
      (thrown) => thrown instanceof ConfigError && /10000 directories/.test(thrown.message),
    );
  });
});

describe('the order of many directives', () => {
  /** As many steps of `respond` with different paths, whose matchers are counted when they are looked at. */
  function steps(count: number) {
    const looked = { times: 0 };
    const given: OrderedStep[] = Array.from({ length: count }, (_, i) => ({
      directive: 'respond',
      routes: [
        {
          handler: { kind: 'abort' },
          get matcher(): RequestMatcher {
            looked.times += 1;
            return [{ kind: 'path', paths: [`/${'x'.repeat((i * 7919) % 401)}/${i}`] }];
          },
        },
      ],
    }));
    return { given, looked };
  }
  const pathOf = ({ matcher }: RouteConfig): string => {
    const [one] = matcher ?? [];
    return one?.kind === 'path' ? (one.paths[0] ?? '') : '';
  };

  it('is by the length of their paths', () => {
    const { given } = steps(1_000);
    const paths = inDocumentedOrder(given, directiveTable.places, directiveTable).map(pathOf);
    const expected = given
      .map(({ routes: [route] }) => (route === undefined ? '' : pathOf(route)))
      .sort((a, b) => b.length - a.length || (a < b ? -1 : 1));
    assert.deepEqual(paths, expected);
  });

  it('looks at each matcher a few times, however many there are', () => {
    const { given, looked } = steps(5_000);
    inDocumentedOrder(given, directiveTable.places, directiveTable);
    assert.ok(looked.times <= 3 * given.length, `${looked.times} times`);
  });
});

import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Document, type Editor, type Item, startEditor } from '../../support/vscode.ts';

const extension = join(dirname(fileURLToPath(import.meta.url)), '../../../editors/vscode');

/** A text without the `|` in it, and where that stood. */
function at(marked: string): { document: Document; position: ReturnType<Document['positionAt']> } {
  const offset = marked.indexOf('‸');
  const document = new Document(marked.replace('‸', ''));
  return { document, position: document.positionAt(offset) };
}

describe('the editor extension when it runs', () => {
  let editor: Editor;
  before(async () => {
    // As it is installed from a clone.
    const link = join(mkdtempSync(join(tmpdir(), 'hubgate-editor-')), 'hubgate.hubfile-0.1.0');
    symlinkSync(extension, link);
    editor = await startEditor(link);
  });

  const offered = (marked: string): readonly Item[] => {
    const { document, position } = at(marked);
    return editor.provideCompletionItems(document, position);
  };
  const labels = (marked: string): string[] => offered(marked).map(({ label }) => label);
  const told = (marked: string): string | undefined => {
    const { document, position } = at(marked);
    return editor.provideHover(document, position)?.contents.value;
  };

  it('completes sites and the block of options at the top of a file', () => {
    for (const text of ['‸', '# a comment\n‸', 'a.example {\n\trespond ok\n}\n\nb‸']) {
      assert.deepEqual(
        labels(text),
        ['global options', 'site', 'snippet', 'route', 'import'],
        text,
      );
    }
  });

  it('completes global options in the block without an address', () => {
    assert.ok(labels('{\n\t‸').includes('acme_ca'));
    assert.ok(!labels('{\n\t‸').includes('reverse_proxy'));
    assert.deepEqual(labels('{\n\ton_demand_tls {\n\t\t‸\n\t}\n}'), ['ask', 'interval', 'burst']);
    assert.ok(labels('{\n\tservers :443 {\n\t\ttimeouts {\n\t\t\tr‸').includes('read_header'));
  });

  it('completes directives in a site, in the order in which they run', () => {
    for (const text of [
      'example.com {\n\t‸\n}',
      'example.com,\nwww.example.com {\n\t‸',
      'example.com\n{\n\trev‸',
      'example.com\n\n‸',
      '{\n\temail a@b.example\n}\n(app) {\n\thandle /x {\n\t\t‸',
      'a.example {\n\trespond "}\n{" # {\n\t‸',
      'a.example {\n\trespond <<END\n\t\t{\n\t\tEND 200\n\t‸',
      'a.example {\n\timport app {\n\t\t‸',
    ]) {
      const found = labels(text);
      assert.ok(found.includes('reverse_proxy'), text);
      assert.ok(found.indexOf('header') < found.indexOf('reverse_proxy'), text);
      assert.ok(!found.includes('acme_ca'), text);
    }
  });

  it('completes the options of the current block, for its form only', () => {
    const site = (text: string): string[] => labels(`example.com {\n\t${text}`);
    assert.ok(site('reverse_proxy a:1 {\n\t\t‸').includes('lb_policy'));
    assert.ok(
      site('forward_auth a:1 {\n\t\t‸').includes('lb_policy'),
      'those of reverse_proxy too',
    );
    assert.ok(site('reverse_proxy a:1 {\n\t\ttransport http {\n\t\t\t‸').includes('versions'));
    assert.ok(!site('reverse_proxy a:1 {\n\t\ttransport fastcgi {\n\t\t\t‸').includes('versions'));
    assert.ok(site('hub {\n\t\tissuer https://a {\n\t\t\tpublisher {\n\t\t\t\t‸').includes('jwt'));
    assert.ok(site('tls {\n\t\tdns rfc2136 {\n\t\t\t‸').includes('key_name'));
    assert.ok(site('reverse_proxy a:1 {\n\t\thandle_response @x {\n\t\t\t‸').includes('respond'));
    assert.deepEqual(
      site('basic_auth {\n\t\t‸'),
      [],
      'where anything may stand nothing is offered',
    );
    assert.deepEqual(site('constructor {\n\t\t__proto__ {\n\t\t\t‸'), []);
  });

  it('completes conditions after the name of a matcher and in its block', () => {
    for (const text of ['@api ‸', '@api {\n\t\tp‸', '@api {\n\t\tnot ‸', '@api not ‸']) {
      const found = labels(`example.com {\n\t${text}`);
      assert.ok(found.includes('path_regexp') && !found.includes('respond'), text);
    }
  });

  it('completes the names of matchers and fixed words', () => {
    const text = 'a.example {\n\t@api path /api/*\n\trespond @‸';
    assert.deepEqual(labels(text), ['@api']);
    assert.equal(offered(text)[0]?.detail, 'path /api/*');
    assert.deepEqual(labels('a.example {\n\thub {\n\t\tprofile ‸'), ['hub', 'mercure']);
    assert.ok(labels('a.example {\n\treverse_proxy {\n\t\tlb_policy l‸').includes('least_conn'));
  });

  it('completes placeholders after a brace, also in quotes', () => {
    for (const text of [
      'a {\n\trespond {‸',
      'a {\n\trespond "to {pa‸',
      'a {\n\theader X {header.‸',
    ]) {
      const found = offered(text);
      const path = found.find(({ label }) => label === '{path}');
      assert.ok(path !== undefined, text);
      const { document } = at(text);
      assert.equal(document.getText().at(document.offsetAt(path.range.start)), '{', text);
    }
    const [field] = offered('a {\n\trespond {‸').filter(({ label }) => label === '{header.NAME}');
    assert.equal(field?.insertText?.value, '{header.${1:NAME}\\}');
  });

  it('completes nothing in comments, in quotes and after a complete placeholder', () => {
    for (const text of ['a {\n\t# {‸', 'a {\n\trespond "a ‸', 'a {\n\trespond {path}‸']) {
      assert.deepEqual(labels(text), [], text);
    }
  });

  it('explains directives, options, conditions and placeholders, with a link to the documentation', () => {
    for (const [text, part, section] of [
      [
        'a.example {\n\trev‸erse_proxy b:1\n}',
        'forwards to one or several upstreams',
        'reverse_proxy',
      ],
      [
        'a.example {\n\treverse_proxy b:1 {\n\t\tlb_‸policy first\n\t}\n}',
        'lb_policy random_choose',
        'reverse_proxy',
      ],
      ['{\n\tgrace‸_period 10s\n}', 'how long a stop waits', 'global options'],
      ['{\n\tservers {\n\t\tmax_header‸_size 1MiB\n\t}\n}', 'beyond it, a 431', 'servers'],
      ['a.example {\n\t@x path_re‸gexp ^/a\n}', 'RE2 syntax', 'matchers'],
      ['a.example {\n\t@x not pa‸th /a\n}', 'these paths', 'matchers'],
      ['a.example {\n\trespond "from {client‸_ip}!"\n}', 'parts of the request', 'placeholders'],
      ['a.example {\n\trespond {http.request.header.‸Accept}\n}', '{header.NAME}', 'placeholders'],
      ['{$SI‸TE:localhost} {\n}', '{$VAR:default}', 'placeholders'],
      ['a.example {\n\ttls {\n\t\tissuer ac‸me', '', null],
    ] as const) {
      const found = told(text);
      if (section === null) {
        assert.equal(found, undefined, text);
        continue;
      }
      assert.ok(found?.includes(part) === true, `${text}: ${found}`);
      const [, page = '', line = ''] =
        /\[docs\/hubfile.md\]\(file:\/\/(.+)#L(\d+)\)$/.exec(found) ?? [];
      const heading = readFileSync(page, 'utf8').split('\n')[Number(line) - 1];
      assert.equal(heading?.replace(/^#+ /, '').toLowerCase(), section);
    }
  });

  it('explains no comments, values or unknown words', () => {
    for (const text of [
      'a.example {\n\t# reverse‸_proxy\n}',
      'a.example {\n\trespond reverse‸_proxy\n}',
      'a.example {\n\tno_such‸_thing\n}',
      'a.example {\n\trespond "reverse‸_proxy"\n}',
      'a.example {\n\t{constructor‸}\n}',
      `a.example {\n\trespond {re.‸${'.a'.repeat(50_000)}}\n}`,
    ]) {
      assert.equal(told(text), undefined, text.slice(0, 80));
    }
  });

  it('determines the context at any offset of any file, even an invalid one', () => {
    const text = readFileSync(join(extension, '../../Hubfile.example'), 'utf8');
    for (const broken of [
      text,
      text.replaceAll('}', ''),
      text.replaceAll('{', '"'),
      `<<A\n${text}`,
    ]) {
      const document = new Document(broken);
      for (let offset = 0; offset <= Math.min(broken.length, 600); offset += 7) {
        editor.provideCompletionItems(document, document.positionAt(offset));
        editor.provideHover(document, document.positionAt(offset));
      }
    }
  });

  describe('the checks on save', () => {
    const folder = mkdtempSync(join(tmpdir(), 'hubgate-editor-'));
    const file = join(folder, 'Hubfile');
    const ran = join(folder, 'ran');
    const document = new Document('😀 {\n\tnonsense\n}\n', file);
    const problem = {
      severity: 'error',
      code: 'x',
      message: 'm',
      hint: 'h',
      file,
      line: 2,
      column: 2,
    };
    before(() => {
      mkdirSync(join(folder, 'node_modules/.bin'), { recursive: true });
      const command = join(folder, 'node_modules/.bin/hubgate');
      const script = `#!/bin/sh\necho "$@" >> '${ran}'\necho '${JSON.stringify([problem])}'\nexit 1\n`;
      writeFileSync(command, script);
      chmodSync(command, 0o755);
      editor.folder = folder;
    });

    it('run nothing unless they are switched on and the workspace is trusted', () => {
      editor.save(document);
      editor.settings.set('validateOnSave', true);
      editor.trusted = false;
      editor.save(document);
      editor.trusted = true;
      editor.settings.set('validateOnSave', 'yes');
      editor.save(document);
      // A process is started at once, or not at all: the next test would see a second line.
      assert.equal(existsSync(ran), false);
    });

    it('show the output of `hubgate validate --json`, and clear it when the document closes', async () => {
      editor.settings.set('validateOnSave', true);
      const shown = editor.shown();
      editor.save(document);
      await shown;
      assert.equal(readFileSync(ran, 'utf8'), `validate --json --config ${file}\n`);
      const [found] = editor.diagnostics.get(file) ?? [];
      assert.equal(found?.message, 'm: h');
      assert.equal(found?.severity, 'severity.Error');
      assert.equal(JSON.stringify(found?.range.start), '{"line":1,"character":1}');
      assert.equal(JSON.stringify(found?.range.end), '{"line":1,"character":9}');
      editor.close(document);
      assert.equal(editor.diagnostics.has(file), false);
    });

    it('check an imported part through the Hubfile above it, and ignore a result that arrives too late', async () => {
      mkdirSync(join(folder, 'sites'));
      writeFileSync(file, '');
      const part = new Document('nonsense\n', join(folder, 'sites/a.hubfile'));
      editor.save(document);
      editor.close(document);
      const shown = editor.shown();
      editor.save(part);
      await shown;
      const [, ...later] = readFileSync(ran, 'utf8').trim().split('\n');
      assert.deepEqual(new Set(later), new Set([`validate --json --config ${file}`]));
      assert.equal(editor.diagnostics.size, 1);
      editor.close(part);
      assert.equal(editor.diagnostics.size, 0);
    });
  });

  it('has a manifest that names only existing items, and runs nothing in an untrusted workspace', () => {
    const manifest = JSON.parse(readFileSync(join(extension, 'package.json'), 'utf8'));
    const { contributes, capabilities } = manifest;
    assert.equal(manifest.main, './dist/extension.js');
    assert.deepEqual(manifest.activationEvents, ['onLanguage:hubfile']);
    const lists = [contributes.grammars, contributes.snippets].flat();
    const paths = lists.map(({ path }: { path: string }) => path);
    const urls = [...contributes.jsonValidation, ...contributes.yamlValidation].map(
      ({ url }: { url: string }) => url,
    );
    for (const path of [...paths, ...urls]) assert.ok(existsSync(join(extension, path)), path);
    const settings = contributes.configuration.properties;
    assert.equal(settings['hubfile.validateOnSave'].default, false);
    assert.equal(settings['hubfile.command'].scope, 'machine');
    const { supported, restrictedConfigurations } = capabilities.untrustedWorkspaces;
    assert.equal(supported, 'limited');
    assert.deepEqual(restrictedConfigurations, Object.keys(settings));
  });
});

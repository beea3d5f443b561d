import assert from 'node:assert/strict';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, it, type TestContext } from 'node:test';
import { build } from 'esbuild';
import { compile } from 'svelte/compiler';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { root } from '../support/process.ts';
import { liveHubfile, startSite } from '../unit/discovery/site.ts';

const HUBFILE = liveHubfile();

/** A list that the server has rendered, a draft, and a button that loads the list again. */
interface Framework {
  readonly name: string;
  /** Exports the component `App` with the property `items`. */
  readonly app: string;
  /** Exports `render(items)`, which returns or resolves to HTML. */
  readonly server: string;
  /** Runs in the browser. */
  readonly client: string;
}

const LOAD = "fetch('/items').then((response) => response.json())";

/** React and Preact differ in the names of their modules. */
const ofHooks = (name: string, element: string, hooks: string): string => `
  import { ${element} as h } from '${name}';
  import { useState } from '${hooks}';
  export function App({ items }) {
    const [list, setList] = useState(items);
    const [draft, setDraft] = useState('');
    const write = (event) => setDraft(event.target.value);
    return h('main', null,
      h('ul', null, list.map((item) => h('li', { key: item }, item))),
      h('textarea', { id: 'draft', value: draft, onChange: write, onInput: write }),
      h('button', { id: 'load', onClick: () => ${LOAD}.then(setList) }, 'load'));
  }`;

const FRAMEWORKS: readonly Framework[] = [
  {
    name: 'React',
    app: ofHooks('react', 'createElement', 'react'),
    server: `
      import { renderToString } from 'react-dom/server';
      import { createElement } from 'react';
      import { App } from './app.js';
      export const render = (items) => renderToString(createElement(App, { items }));`,
    client: `
      import { hydrateRoot } from 'react-dom/client';
      import { createElement } from 'react';
      import { App } from './app.js';
      hydrateRoot(document.getElementById('app'), createElement(App, { items: window.items }));`,
  },
  {
    name: 'Preact',
    app: ofHooks('preact', 'h', 'preact/hooks'),
    server: `
      import { renderToString } from 'preact-render-to-string';
      import { h } from 'preact';
      import { App } from './app.js';
      export const render = (items) => renderToString(h(App, { items }));`,
    client: `
      import { h, hydrate } from 'preact';
      import { App } from './app.js';
      hydrate(h(App, { items: window.items }), document.getElementById('app'));`,
  },
  {
    name: 'Vue',
    app: `
      import { createSSRApp, h, ref } from 'vue';
      export const App = (items) => createSSRApp({
        setup() {
          const [list, draft] = [ref(items), ref('')];
          return () => h('main', [
            h('ul', list.value.map((item) => h('li', { key: item }, item))),
            h('textarea', { id: 'draft', value: draft.value, onInput: (event) => (draft.value = event.target.value) }),
            h('button', { id: 'load', onClick: () => ${LOAD}.then((next) => (list.value = next)) }, 'load'),
          ]);
        },
      });`,
    server: `
      import { renderToString } from 'vue/server-renderer';
      import { App } from './app.js';
      export const render = (items) => renderToString(App(items));`,
    client: `
      import { App } from './app.js';
      App(window.items).mount('#app');`,
  },
  {
    name: 'Svelte',
    app: `
      <script>
        let { items } = $props();
        let list = $state(items);
        let draft = $state('');
        const load = async () => { list = await ${LOAD}; };
      </script>
      <main>
        <ul>{#each list as item (item)}<li>{item}</li>{/each}</ul>
        <textarea id="draft" bind:value={draft}></textarea>
        <button id="load" onclick={load}>load</button>
      </main>`,
    server: `
      import { render as renderComponent } from 'svelte/server';
      import App from './app.js';
      export const render = async (items) => (await renderComponent(App, { props: { items } })).body;`,
    client: `
      import { hydrate } from 'svelte';
      import App from './app.js';
      hydrate(App, { target: document.getElementById('app'), props: { items: window.items } });`,
  },
];

/** Builds one side of an app, and returns the path of the bundle. */
async function bundle(
  directory: string,
  { name, app, server, client }: Framework,
  side: 'server' | 'client',
): Promise<string> {
  const folder = join(directory, side);
  await mkdir(folder, { recursive: true });
  const isSvelte = name === 'Svelte';
  const code = isSvelte ? compile(app, { generate: side }).js.code : app;
  await writeFile(join(folder, 'app.js'), code);
  const entry = join(folder, 'entry.js');
  await writeFile(entry, side === 'server' ? server : client);
  const outfile = join(folder, 'out.mjs');
  await build({
    entryPoints: [entry],
    outfile,
    ...{ bundle: true, format: 'esm', logLevel: 'silent' },
    platform: side === 'server' ? 'node' : 'browser',
    nodePaths: [join(root, 'node_modules')],
    define: { 'process.env.NODE_ENV': '"production"' },
    banner: {
      js:
        side === 'server'
          ? "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"
          : '',
    },
  });
  return outfile;
}

async function startApp(test: TestContext, framework: Framework) {
  const directory = await mkdtemp(join(root, 'node_modules/.hubgate-frameworks-'));
  removeWith(test, directory);
  const server = (await import(
    pathToFileURL(await bundle(directory, framework, 'server')).href
  )) as { render(items: readonly string[]): string | Promise<string> };
  const { readFile } = await import('node:fs/promises');
  const script = await readFile(await bundle(directory, framework, 'client'), 'utf8');
  const state = { items: ['one', 'two', 'three'], plain: 0, hasPart: true };
  const site = await startSite(
    test,
    (request, response) => {
      request.resume();
      const path = request.url ?? '/';
      if (request.method === 'POST') {
        state.plain += 1;
        response.writeHead(204).end();
      } else if (path === '/app.js') {
        response.setHeader('Content-Type', 'text/javascript').end(script);
      } else if (path === '/items') {
        response.setHeader('Content-Type', 'application/json').end(JSON.stringify(state.items));
      } else {
        void Promise.resolve(server.render(state.items)).then((html) =>
          response
            .setHeader('Content-Type', 'text/html; charset=utf-8')
            .end(
              `<!doctype html><html><head><title>list</title></head><body><p id=plain>${state.plain}</p>` +
                `${state.hasPart ? `<div id=app>${html}</div>` : ''}<script>window.items = ${JSON.stringify(state.items)}</script>` +
                '<script type=module src=/app.js></script></body></html>',
            ),
        );
      }
    },
    { hubfile: HUBFILE },
  );
  return { state, site };
}

describe('live pages that a framework renders', () => {
  for (const framework of FRAMEWORKS) {
    it(`are left to ${framework.name}: no failure, nothing twice, no draft lost, and a notice`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const { state, site } = await startApp(test, framework);
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const errors: string[] = [];
      page.on('pageerror', (error) => errors.push(String(error)));
      page.on('console', (message) => {
        if (message.type() === 'error') errors.push(message.text());
      });
      const followed = page.waitForResponse((one) => one.url().includes('/hub?'));
      await page.goto(`${site.origin}/list`);
      await followed;
      await page.locator('#load').click();
      const change = async (items: readonly string[]): Promise<void> => {
        state.items = [...items];
        await fetch(`${site.origin}/list`, { method: 'POST' });
        // What the server alone renders follows.
        await page.locator('#plain', { hasText: String(state.plain) }).waitFor();
      };
      const list = async (): Promise<string> =>
        (await page.locator('li').allTextContents()).join(' ');
      const notice = page.locator('#hub-stale');

      // The framework would go on to render what is no longer in the page.
      state.hasPart = false;
      await change(state.items);
      await notice.waitFor();
      assert.equal(await list(), 'one two three');
      state.hasPart = true;
      await change(state.items);
      await notice.waitFor({ state: 'detached' });

      await page.locator('#draft').fill('my draft');
      // The framework shows the change before it is announced, so there is nothing to tell.
      state.items = ['one', 'two', 'three', 'four'];
      await page.locator('#load').click();
      await page.locator('li', { hasText: 'four' }).waitFor();
      await change(state.items);
      await change(state.items);
      assert.equal(await list(), 'one two three four');
      assert.equal(await notice.count(), 0);

      await change(['one', 'three', 'four', 'five']);
      await notice.waitFor();
      assert.equal(await list(), 'one two three four');
      await page.locator('#load').click();
      await page.locator('li', { hasText: 'five' }).waitFor();
      assert.equal(await list(), 'one three four five');
      // Without another update, the button disappears because the framework shows the change.
      await notice.waitFor({ state: 'detached' });
      // The first response is no longer what the page shows.
      await change(['one', 'two', 'three']);
      await notice.waitFor();
      assert.equal(await list(), 'one three four five');
      assert.equal(await page.locator('#draft').inputValue(), 'my draft');
      assert.deepEqual(errors, []);
    });
  }
});

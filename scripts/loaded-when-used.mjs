// What the bundle does not load at the start: libraries that few configurations need, and what Node itself loads when
// all exports of one of its modules are read.
import http from 'node:http';
import { root } from './install.mjs';

/** Libraries that become files of their own, with the exports that the source imports. */
const EXPORTS = {
  '@marcbachmann/cel-js': ['Environment'],
  re2js: ['RE2JS', 'RE2JSSyntaxException'],
  tldts: ['getDomain'],
  'uri-template': ['parse'],
  'urlpattern-polyfill': ['URLPattern'],
  yaml: ['Composer', 'isAlias', 'isMap', 'isScalar', 'isSeq', 'Parser', 'stringify'],
};
export const LIBRARIES = Object.keys(EXPORTS);

/** The name of a library's file in dist/libraries, without its ending. */
export function libraryFile(library) {
  return library.replace(/^@/, '').replace('/', '-');
}

/** A plugin of the bundler: importers of these libraries get stand-ins, which load the library when they are used. */
export const loadedWhenUsed = {
  name: 'loaded-when-used',
  setup({ onResolve, onLoad }) {
    const filter = new RegExp(`^(?:${LIBRARIES.join('|')})$`);
    onResolve({ filter }, ({ path }) => ({ path, namespace: 'when-used', sideEffects: false }));
    onResolve({ filter: /^#library\// }, ({ path }) => ({ path, external: true }));
    onLoad({ filter: /./, namespace: 'when-used' }, ({ path }) => {
      const file = JSON.stringify(`#library/${libraryFile(path)}`);
      const standIns = EXPORTS[path].map(
        (name) => `export const ${name} = whenUsed(() => require(${file}).${name});`,
      );
      const contents = ["import { whenUsed } from './scripts/when-used.mjs';", ...standIns];
      return { contents: contents.join('\n'), resolveDir: root };
    });
  },
};

/**
 * A plugin of the bundler: `node:http` is loaded by `require`. `import` reads all of its exports, and for some of them
 * Node loads the client behind `fetch`, which takes 3 MB.
 */
export const requiredHttp = {
  name: 'required-http',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:http$/ }, ({ path, kind }) =>
      kind === 'import-statement'
        ? { path, namespace: 'required', sideEffects: false }
        : { path, external: true },
    );
    onLoad({ filter: /./, namespace: 'required' }, () => {
      // The annotation lets the bundler leave out whatever nothing imports.
      const exported = Object.keys(http).map(
        (name) => `export const ${name} = /* @__PURE__ */ (() => required.${name})();`,
      );
      return { contents: ["const required = require('node:http');", ...exported].join('\n') };
    });
  },
};

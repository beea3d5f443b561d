// Fails on an import that docs/architecture.md forbids: between folders, of a library outside its
// one place, or in a cycle.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { parseSync } from 'oxc-parser';
import { root } from './install.mjs';

const source = join(root, 'src');

/** Folder → folders it may import. Files directly in src/ are the doors. */
const MAY_IMPORT = {
  kernel: [],
  config: ['kernel'],
  hubfile: ['kernel', 'config'],
  hub: ['kernel'],
  postgres: ['kernel', 'config'],
  transports: ['kernel', 'config', 'hub', 'postgres'],
  outbox: ['kernel', 'config', 'hub', 'postgres'],
  auth: ['kernel', 'config', 'hub'],
  http: ['kernel', 'config'],
  debugger: ['kernel', 'hub', 'auth', 'client'],
  'hub-http': ['kernel', 'http', 'hub', 'auth', 'debugger'],
  discovery: ['kernel', 'config', 'http', 'auth', 'client'],
  coalescing: ['kernel', 'http'],
  proxy: ['kernel', 'config', 'http', 'coalescing'],
  cache: ['kernel', 'http', 'coalescing'],
  site: ['kernel', 'config', 'http', 'coalescing', 'proxy', 'cache'],
  matchers: ['kernel', 'config', 'hubfile', 'http', 'proxy', 'site'],
  directives: ['kernel', 'config', 'hubfile', 'http', 'proxy', 'cache', 'site', 'matchers'],
  tls: ['kernel', 'config'],
  server: ['kernel', 'config', 'http', 'tls'],
  runtime:
    'cache coalescing client kernel config directives matchers hub transports postgres outbox auth http hub-http discovery proxy site tls server'.split(
      ' ',
    ),
  client: [],
  cli: 'cache doors directives runtime hubfile auth config kernel tls hub postgres outbox'.split(
    ' ',
  ),
  doors:
    'cache directives runtime hubfile auth config proxy kernel hub hub-http transports http server'.split(
      ' ',
    ),
};

/** Library → the only files or folders that import it. */
const LIBRARY_PLACE = {
  'acme-client': ['tls/acme/client.ts'],
  'http-proxy-3': ['proxy/upgrade.ts'],
  'eventsource-parser': ['cli/hub-request.ts'],
  chokidar: ['cli/watch/file-watcher.ts'],
  jose: ['auth/', 'tls/acme/dns/services/google-cloud-dns.ts'],
  aws4: ['tls/acme/dns/services/route53.ts'],
  'urlpattern-polyfill': ['hub/pattern/'],
  'uri-template': ['hub/pattern/'],
  re2js: ['hub/pattern/', 'auth/legacy-claim.ts', 'site/', 'http/'],
  '@marcbachmann/cel-js': ['matchers/expression/'],
  lmdb: ['transports/lmdb/'],
  '@redis/client': ['transports/redis/'],
  pg: ['postgres/'],
  yaml: ['hubfile/', 'cli/'],
  '@peculiar/x509': ['tls/make-certificate.ts'],
  'reflect-metadata': ['tls/make-certificate.ts'],
  'prom-client': ['runtime/metrics.ts'],
  pino: ['cli/', 'runtime/'],
  commander: ['cli/'],
  diff: ['cli/commands/fmt.ts'],
  'hash-wasm': ['directives/basic-auth/password-thread.ts', 'cli/commands/hash-password.ts'],
  'mime-types': ['directives/file-server/'],
  tldts: ['http/same-site.ts'],
};

const files = readdirSync(source, { recursive: true })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.replaceAll('\\', '/'));
const graph = new Map(files.map((file) => [file, importsOf(file)]));
const faults = [...graph].flatMap(([file, imports]) => imports.flatMap((to) => fault(file, to)));
faults.push(...cycles(), ...files.flatMap(ownUrls));
for (const text of faults) console.error(text);
if (faults.length > 0) process.exit(1);

function fault(file, to) {
  const from = folderOf(file);
  if (!(from in MAY_IMPORT)) return [`${file}: folder ${from} has no layer rule`];
  if (to.startsWith('./') || to.startsWith('../')) {
    const target = relative(source, resolve(source, dirname(file), to));
    const folder = folderOf(target);
    if (folder === from || MAY_IMPORT[from].includes(folder)) return [];
    return [`${file}: ${from} may not import ${folder} (${to})`];
  }
  if (to.startsWith('node:') || to.startsWith('#')) return [];
  const library = to.startsWith('@') ? to.split('/').slice(0, 2).join('/') : to.split('/')[0];
  const places = LIBRARY_PLACE[library];
  if (places === undefined) return [`${file}: ${library} has no place in scripts/check-layers.mjs`];
  if (places.some((place) => file === place || (place.endsWith('/') && file.startsWith(place)))) {
    return [];
  }
  return [`${file}: only ${places.join(', ')} may import ${library}`];
}

/** What comes from outside is parsed in one place, which fixes what old Nodes get wrong. */
function ownUrls(file) {
  if (file === 'kernel/parse.ts' || ['client', 'debugger'].includes(folderOf(file))) return [];
  const { program } = parseSync(file, readFileSync(join(source, file), 'utf8'));
  const found = [];
  const visit = (node) => {
    if (node === null || typeof node !== 'object') return;
    const makes = node.type === 'NewExpression' && node.callee.name === 'URL';
    const asks = node.type === 'MemberExpression' && node.object.name === 'URL';
    if (makes || asks) found.push(`${file}: URLs are parsed by kernel/parse.ts`);
    for (const child of Object.values(node)) visit(child);
  };
  visit(program);
  return found;
}

function importsOf(file) {
  const { module, errors } = parseSync(file, readFileSync(join(source, file), 'utf8'));
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`);
  const dynamic = module.dynamicImports.map(({ moduleRequest: { start, end } }) =>
    readFileSync(join(source, file), 'utf8').slice(start + 1, end - 1),
  );
  return [
    ...module.staticImports.map(({ moduleRequest }) => moduleRequest.value),
    ...module.staticExports.flatMap(({ entries }) =>
      entries.flatMap(({ moduleRequest }) => (moduleRequest ? [moduleRequest.value] : [])),
    ),
    ...dynamic,
  ];
}

function folderOf(file) {
  return file.includes('/') ? file.slice(0, file.indexOf('/')) : 'doors';
}

function cycles() {
  const found = [];
  const done = new Set();
  const path = [];
  const visit = (file) => {
    const at = path.indexOf(file);
    if (at !== -1) found.push(`import cycle: ${[...path.slice(at), file].join(' → ')}`);
    if (at !== -1 || done.has(file)) return;
    path.push(file);
    for (const to of graph.get(file) ?? []) {
      const target = relative(source, resolve(source, dirname(file), to));
      if (to.startsWith('.')) visit(target);
    }
    path.pop();
    done.add(file);
  };
  for (const file of files) visit(file);
  return found;
}

// Configurations that nobody would think of: random combinations of directives, matchers and placeholders
// that both programs answer alike on their own. A seed makes each of them again.

import type { ComparedCase, ComparedRequest } from './cases.ts';
import {
  WIDE_CONDITIONS,
  WIDE_FIELDS,
  WIDE_PATHS,
  WIDE_TEXTS,
  wideDirective,
} from './wide-cases.ts';

type Random = () => number;

/** From this seed on, cases have more kinds of everything. */
const WIDE_FROM = 1_000_000;

/** Mulberry32: the same numbers for the same seed on every machine. */
function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d_2b_79_f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const PATHS = [
  '/',
  '/a',
  '/a.txt',
  '/a/b',
  '/b',
  '/b/c/d',
  '/dir',
  '/dir/',
  '/dir/inner.txt',
  '/x.css',
  '/list/',
  '/missing',
  '/A',
  '/page',
  '/index.html',
];
const PREFIXES = ['/a', '/a/*', '/a*', '/b/*', '/dir/*', '*.txt', '*.css', '/x*', '/b/*/d', '/*'];
const TEXTS = [
  'one',
  '"two words"',
  '{uri}',
  '{method}',
  '{host}',
  '{query}',
  '{vars.v}',
  '"{m} {m2}"',
  '{header.X-A}',
  '{query.q}',
  '{scheme}',
  '{http.request.orig_uri}',
  '{path}',
  '{path.0}',
  '{file}',
  '{dir}',
  '{labels.1}',
  '{?query}',
  '{remote_host}',
  '{orig_path}',
  '{http.request.orig_method}',
  '{http.request.uri.query.z}',
];
const FIELDS = ['X-A', 'X-B', 'Cache-Control', 'Set-Cookie', 'Location', 'X-App'];

class Writer {
  readonly #random: Random;
  readonly #isWide: boolean;
  readonly #lines: string[] = [];
  #names = 0;

  constructor(random: Random, isWide: boolean) {
    this.#random = random;
    this.#isWide = isWide;
  }

  /** One of the usual ones, or of those that only wide cases have. */
  wide<T>(usual: readonly T[], more: readonly T[]): T {
    return this.one(this.#isWide && this.chance(0.6) ? more : usual);
  }

  one<T>(list: readonly T[]): T {
    const found = list[Math.floor(this.#random() * list.length)];
    if (found === undefined) throw new TypeError('an empty list');
    return found;
  }

  chance(part: number): boolean {
    return this.#random() < part;
  }

  times(most: number): number {
    return 1 + Math.floor(this.#random() * most);
  }

  add(line: string): void {
    this.#lines.push(line);
  }

  get text(): string {
    return `${this.#lines.join('\n')}\n`;
  }

  /** A matcher, or nothing; a named one is defined before. */
  matcher(): string {
    if (this.chance(0.35)) return '';
    if (this.chance(0.55)) return ` ${this.one(PREFIXES.filter((each) => each.startsWith('/')))}`;
    this.#names += 1;
    const name = `@m${this.#names}`;
    const two = Array.from({ length: this.times(2) }, () => this.condition());
    // Caddy takes no host twice, and of two expressions the first alone.
    const isTwice = (word: string): boolean => two.every((each) => each.includes(word));
    const conditions = isTwice('host ') || isTwice('expression ') ? two.slice(0, 1) : two;
    if (conditions.length === 1) this.add(`${name} ${conditions[0]}`);
    else this.add(`${name} {\n${conditions.join('\n')}\n}`);
    return ` ${name}`;
  }

  condition(): string {
    if (this.#isWide && this.chance(0.5)) return this.one(WIDE_CONDITIONS);
    const negated = this.chance(0.2) ? 'not ' : '';
    const kind = this.one([
      'path',
      'path',
      'method',
      'query',
      'header',
      'path_regexp',
      'header_regexp',
      'vars',
      'file',
      'expression',
      'host',
      'protocol',
      'remote_ip',
    ]);
    switch (kind) {
      case 'path':
        return `${negated}path ${this.one(PREFIXES)} ${this.one(PREFIXES)}`;
      case 'method':
        return `${negated}method ${this.one(['GET', 'POST', 'GET HEAD', 'PUT DELETE'])}`;
      case 'query':
        return `${negated}query ${this.one(['q=1', 'q=*', 'z=1 q=2'])}`;
      case 'header':
        return `${negated}header ${this.one(['X-A *', 'X-A 1', '!X-A', 'X-A *b*', 'Accept text*'])}`;
      case 'path_regexp':
        return `${negated}path_regexp r ${this.one(['^/(a|b)', '([^/]+)$', '\\.(txt|css)$', '^/(.*)/(.*)$'])}`;
      case 'header_regexp':
        return `${negated}header_regexp r X-A ${this.one(['(\\d)', '^(b.*)$'])}`;
      case 'vars':
        return `${negated}vars {vars.v} ${this.one(['one', 'two', '""'])}`;
      case 'file':
        return `${negated}file ${this.one(['', '{path}', '{path} {path}/', '/a.txt', '{path}.html', '{path}/index.html'])}`.trimEnd();
      case 'expression':
        return `${negated}expression ${this.one(["`{method} == 'GET'`", "`path('/a*') || query({'q': '1'})`", "`{query.q} == '1'`", "`{uri}.startsWith('/a')`"])}`;
      case 'host':
        return `${negated}host ${this.one(['other.test', '*.test', '{host}'])}`;
      case 'protocol':
        return `${negated}protocol ${this.one(['http', 'https'])}`;
      default:
        return `${negated}remote_ip ${this.one(['127.0.0.1', '10.0.0.0/8', 'private_ranges'])}`;
    }
  }

  directives(depth: number, count: number): void {
    for (let i = 0; i < count; i += 1) this.directive(depth);
  }

  block(head: string, depth: number): void {
    this.add(`${head} {`);
    this.directives(depth + 1, this.times(3));
    this.add('}');
  }

  /** Caddy runs the last of several blocks for the same status first. */
  errors(statuses: string, depth: number): void {
    if (this.text.includes(`handle_errors${statuses} {`)) return;
    this.block(`handle_errors${statuses}`, depth);
  }

  directive(depth: number): void {
    const nested = ['handle', 'handle', 'handle_path', 'route', 'handle_errors'];
    const kind = this.one([
      ...[
        'header',
        'header',
        'respond',
        'respond',
        'rewrite',
        'uri',
        'redir',
        'error',
        'vars',
        'map',
        'request_header',
      ],
      ...[
        'try_files',
        'file_server',
        'reverse_proxy',
        'root',
        'encode',
        'method',
        'forward_auth',
        'intercept',
        'block',
      ],
      ...(depth < 2 ? nested : []),
    ]);
    // Only a site has these.
    if (kind === 'handle_errors' && depth > 0) return;
    const matcher = kind === 'handle_path' || kind === 'handle_errors' ? '' : this.matcher();
    const field = this.one(FIELDS);
    const text = this.wide(TEXTS, WIDE_TEXTS);
    if (this.#isWide && this.chance(0.35)) {
      this.add(wideDirective((list) => this.one(list), matcher, text));
      return;
    }
    if (kind !== 'header') {
      this.more(kind, matcher, field, text, depth);
      return;
    }
    const sign = this.one(['', '', '', '+', '?', '>', '-']);
    this.add(`header${matcher} ${sign}${field}${sign === '-' ? '' : ` ${text}`}`);
  }

  more(kind: string, matcher: string, field: string, text: string, depth: number): void {
    switch (kind) {
      case 'respond':
        return this.add(
          `respond${matcher} ${text} ${this.one(['', '200', '404', '201', '503'])}`.trimEnd(),
        );
      case 'rewrite':
        return this.add(
          `rewrite${matcher === '' ? ' *' : matcher} ${this.one(['/a.txt', '/b{uri}', '/x?q=1', '?q=2', '/dir/', '/new?{query}&z=1', '/p/{path.0}/{file}', '{path}?', '/q?a={query.q}&{query}', '{uri}'])}`,
        );
      case 'uri':
        return this.add(
          `uri${matcher} ${this.one(['strip_suffix .txt', 'replace a b', 'path_regexp /+ /', 'replace /b /a 1'])}`,
        );
      case 'redir':
        return this.add(
          `redir${matcher === '' ? ' *' : matcher} ${this.one(['/to', '/to{uri}', 'https://x.test{uri}', '/to?{query}'])} ${this.one(['', '301', 'permanent', '307'])}`.trimEnd(),
        );
      case 'error':
        return this.add(
          `error${matcher} ${this.one(['404', '"gone" 410', '500', '"a text" 403'])}`,
        );
      case 'vars':
        return this.add(`vars${matcher} v ${this.one(['one', 'two', '{method}'])}`);
      case 'map':
        return this.add(
          `map${matcher} {method} {m} {m2} {\nGET g 1\n~^P(.*)$ "\${1}" 2\ndefault d ${this.one(['-', '{uri}'])}\n}`,
        );
      case 'request_header':
        return this.add(
          `request_header${matcher} ${this.one(['X-A 1', '-X-A', '+X-A 2', 'X-A b c', 'X-B {uri}'])}`,
        );
      case 'try_files':
        return this.add(
          `try_files ${this.one(['{path} /a.txt', '{path} {path}/ /index.html', '{path}.html {path}', '/none /also', '{path} =404'])}`,
        );
      case 'file_server':
        return this.add(
          `file_server${matcher}${this.one(['', '', ' {\nstatus 202\n}', ' {\npass_thru\n}', ' {\nindex a.txt\nhide *.css\n}'])}`,
        );
      case 'reverse_proxy':
        return this.add(
          `reverse_proxy${matcher} ${this.one(['UPSTREAM', 'UPSTREAM', 'DOWN'])}${this.one(['', '', ` {\nheader_up X-B ${text}\nheader_down ${field} down\n}`, ' {\nrewrite /up{uri}\n}', ' {\n@e status 4xx 5xx\nhandle_response @e {\nheader X-H {rp.header.X-App}\ncopy_response\n}\n}', ' {\nreplace_status 207\n}', ' {\nheader_up -X-A\nheader_up +X-B b\nheader_down -X-App\nheader_down +X-Down {http.request.method}\nmethod GET\n}', ' {\n@e status 4xx 5xx\nhandle_response @e {\nrespond "handled {rp.status_code}" 299\n}\n}'])}`,
        );
      case 'forward_auth':
        return this.add(
          `forward_auth${matcher} UPSTREAM {\nuri ${this.one(['/verify', '/check', '/verify{uri}'])}\ncopy_headers ${this.one(['Remote-User', 'Remote-User>X-B', 'X-App'])}\n}`,
        );
      case 'intercept':
        // An answer without a body is intercepted too, where hubgate has its own page.
        if (this.text.includes('handle_errors')) return;
        return this.add(
          `intercept${matcher} {\n@i status 404 5xx\nhandle_response @i {\nrewrite * /b.txt\nroot * FILES\nfile_server\n}\n}`,
        );
      case 'block':
        return this.add(
          `header${matcher} {\n${field} ${text}\n${this.one(['defer', '+X-B two', '-X-App', '?X-C three', '>X-D {method}'])}\n}`,
        );
      case 'root':
        return this.add(
          `root${matcher === '' ? ' *' : matcher} FILES${this.one(['', '', '/dir', '/app'])}`,
        );
      case 'encode':
        return this.add(`encode${matcher} gzip`);
      case 'method':
        return this.add(`method${matcher} ${this.one(['GET', 'POST'])}`);
      case 'handle_path':
        return this.block(`handle_path ${this.one(['/a/*', '/b/*', '/dir/*', '/*'])}`, depth);
      case 'handle_errors':
        return this.errors(this.one(['', '', ' 404', ' 5xx']), depth);
      default:
        return this.block(`${kind}${matcher}`, depth);
    }
  }

  wideFields(method: string): (readonly [name: string, value: string])[] {
    return WIDE_FIELDS.filter(
      ({ part, only }) => (only ?? method) === method && this.chance(part),
    ).map(({ name, values }) => [name, this.one(values)] as const);
  }

  requests(): ComparedRequest[] {
    return Array.from({ length: 6 }, () => {
      const method = this.one(['GET', 'GET', 'GET', 'POST', 'HEAD', 'PUT', 'OPTIONS']);
      const path = this.wide(PATHS, WIDE_PATHS);
      const target = path.includes('?')
        ? path
        : path + this.one(['', '', '?q=1', '?z=1&q=2', '?q=']);
      const headers = [
        ...(this.chance(0.4) ? [['X-A', this.one(['1', 'b', 'abc'])] as const] : []),
        ...(this.chance(0.2) && !this.text.includes('reverse_proxy')
          ? [['Accept-Encoding', 'gzip'] as const]
          : []),
        ...(this.#isWide ? this.wideFields(method) : []),
        ...(this.chance(0.2) ? [['Answer-Status', this.one(['404', '500', '302'])] as const] : []),
      ];
      const body =
        method === 'POST' || method === 'PUT' ? this.one(['body', 'a longer body', '']) : undefined;
      const line = `> ${method} ${target} ${headers.map((each) => each.join(': ')).join(' | ')} || ${body ?? ''}`;
      return { line, method, target, headers, body };
    });
  }
}

/** The case of a seed. */
export function randomCase(seed: number): ComparedCase {
  const writer = new Writer(randomOf(seed), seed >= WIDE_FROM);
  if (writer.chance(0.7)) writer.add('root * FILES');
  writer.directives(0, writer.times(7));
  // A request that no directive answers is a documented difference.
  writer.add(writer.chance(0.5) ? 'reverse_proxy UPSTREAM' : 'file_server');
  return {
    file: 'random',
    title: `seed ${seed}`,
    text: writer.text,
    requests: writer.requests(),
    verdict: { kind: 'same' },
    isWhole: false,
    isNewer: false,
    isHttp1: false,
  };
}

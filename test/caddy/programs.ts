import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import type { TestContext } from 'node:test';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { type Answer, type Owner, send } from '../support/http.ts';
import { createGateway, parseHubfile, silentLogger } from '../support/installed-package.ts';
import { programPath } from '../support/program.ts';
import { sendHttp2 } from './http2-request.ts';
import type { ComparedCase, ComparedRequest } from './cases.ts';

/** How a program is asked: over a plain connection, or over HTTP/2 with TLS. */
export type Wire = 'http1' | 'http2';

/** What both programs serve, forward to and write to. */
export interface Surroundings {
  readonly directory: string;
  readonly upstream: number;
  readonly down: number;
}

const FILES: Readonly<Record<string, string | Buffer>> = {
  'index.html': '<h1>home</h1>\n',
  'a.txt': 'text a\n',
  'empty.txt': '',
  'b.txt': 'a longer text b\n',
  'no-extension': 'plain\n',
  'page.html': '<p>page</p>\n',
  'style.css': 'a{}\n',
  'style.css.gz': gzipSync('a{}\n'),
  'script.js': 'run()\n',
  'data.json': '{"a":1}\n',
  'with space.txt': 'spaced\n',
  'umlaut-ä.txt': 'umlaut\n',
  'large.txt': 'a line of a large text\n'.repeat(200),
  'large.bin': Buffer.alloc(4096, 7),
  'dir/index.html': '<p>dir</p>\n',
  'dir/inner.txt': 'inner\n',
  'dir/sub/deep.txt': 'deep\n',
  'list/one.txt': 'one\n',
  'list/two.txt': 'two!\n',
  'blog/2024/post': 'post\n',
  'errors/404.html': '<p>no such page</p>\n',
  'errors/503.html': '<p>closed</p>\n',
  'app/index.html': '<p>app</p>\n',
  'app/main.js': 'main()\n',
  'index.php': 'php\n',
  'maintenance.on': '',
};

/** Makes the files and starts the app. */
export async function surroundings(owner: Owner): Promise<Surroundings> {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-caddy-'));
  owner.after(() => rmSync(directory, { recursive: true, force: true }));
  for (const [name, content] of Object.entries(FILES)) {
    const file = join(directory, 'files', name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
  const app = startApp();
  owner.after(() => {
    app.closeAllConnections();
    app.close();
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  const address = app.address();
  const upstream = typeof address === 'object' ? (address?.port ?? 0) : 0;
  return { directory, upstream, down: await freePort() };
}

/** What every client or program says in its own way. */
const UNSEEN = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'te',
  'traceparent',
  'tracestate',
  'transfer-encoding',
  'user-agent',
  'via',
]);

/**
 * An app that answers with what it saw. `Answer-Status`, `Answer-Field`, `Answer-Body` and
 * `Answer-Trailer` say what else it answers; with `Answer-Break` it hangs up. `/verify` knows clients that
 * have the cookie of a session.
 */
function startApp(): Server {
  return createServer((request, response) => {
    // A program may break a request off.
    answerApp(request, response).catch(() => response.destroy());
  });
}

async function answerApp(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  const { headers } = request;
  const seen = Object.entries(headers)
    .filter(([name]) => !UNSEEN.has(name) && !name.startsWith('answer-'))
    .map(([name, value]) => `${name}: ${String(value)}\n`)
    .sort();
  const isKnown = headers.cookie?.includes('session=1') === true;
  const isVerified = request.url?.startsWith('/verify') === true;
  if (headers['answer-break'] !== undefined) {
    response.destroy();
    return;
  }
  if (isVerified && isKnown) {
    response.setHeader('Remote-User', 'ann');
    response.setHeader('Remote-Groups', 'staff');
  }
  response.setHeader('X-App', 'seen');
  response.setHeader('Content-Type', 'text/plain');
  const field = /^([^:]+): (.*)$/.exec(String(headers['answer-field'] ?? ''));
  if (field !== null) response.setHeader(field[1] ?? '', field[2] ?? '');
  const trailer = /^([^:]+): (.*)$/.exec(String(headers['answer-trailer'] ?? ''));
  if (trailer !== null) {
    response.setHeader('Trailer', trailer[1] ?? '');
    response.addTrailers([[trailer[1] ?? '', trailer[2] ?? '']]);
  }
  const plain = `${request.method} ${request.url}\n${seen.join('')}\n${body}`;
  response.writeHead(isVerified && !isKnown ? 401 : Number(headers['answer-status'] ?? 200));
  response.end(headers['answer-body'] ?? plain);
}

/** Where a program that was started serves a case. */
export interface Served {
  readonly port: number;
  ask(one: ComparedCase, request: ComparedRequest): Promise<Answer>;
  /** Whether the program does not take the text. */
  refuses(one: ComparedCase): boolean;
}

/** The host under which a case is served beside the others. */
function hostOf(index: number): string {
  return `c${index}.test`;
}

/** The text of a case with its places filled in. */
function placed(text: string, { directory, upstream, down }: Surroundings, port: number) {
  return text
    .replaceAll('UPPORT', String(upstream))
    .replaceAll('UPSTREAM', `127.0.0.1:${upstream}`)
    .replaceAll('DOWN', `127.0.0.1:${down}`)
    .replaceAll('FILES', join(directory, 'files'))
    .replaceAll('PORT', String(port));
}

function siteText(
  one: ComparedCase,
  index: number,
  around: Surroundings,
  port: number,
  wire: Wire,
): string {
  const tls = wire === 'http2' ? `tls ${certificateIn(around)}\n` : '';
  const scheme = wire === 'http2' ? 'https' : 'http';
  const inner = `bind 127.0.0.1\n${tls}${placed(one.text, around, port)}`;
  return `${scheme}://${hostOf(index)}:${port} {\n${inner}}\n`;
}

/** The files of a certificate for all hosts of cases. */
function certificateIn({ directory }: Surroundings): string {
  const names = ['crt', 'key'].map((end) => join(directory, `*.test.${end}`));
  if (!existsSync(names[0] ?? '')) {
    createClientAuthority(directory, 'authority').issue('*.test', 'serverAuth');
  }
  return names.join(' ');
}

/** One configuration of many cases, each a site of its own, or of one that is a whole file. */
export function configurationOf(
  cases: readonly ComparedCase[],
  indexOf: (one: ComparedCase) => number,
  around: Surroundings,
  port: number,
  options: string,
  wire: Wire = 'http1',
): string {
  const [first] = cases;
  if (first?.isWhole === true) {
    const text = placed(first.text, around, port);
    return text.startsWith('{\n') ? `{\n${options}${text.slice(2)}` : `{\n${options}}\n${text}`;
  }
  const sites = cases.map((one) => siteText(one, indexOf(one), around, port, wire));
  const off = wire === 'http2' ? 'auto_https off\nservers {\nprotocols h1 h2\n}\n' : '';
  return `{\n${off}${options}}\n${sites.join('')}`;
}

function served(
  port: number,
  indexOf: (one: ComparedCase) => number,
  around: Surroundings,
  wire: Wire,
): Served {
  const upstream = `127.0.0.1:${around.upstream}`;
  return {
    port,
    refuses: () => false,
    ask: (one, { method, target, headers, body }) => {
      const host = one.isWhole ? `127.0.0.1:${port}` : `${hostOf(indexOf(one))}:${port}`;
      const isNamed = headers.some(([name]) => name.toLowerCase() === 'host');
      const fields = headers.map(
        ([name, value]) =>
          [
            name,
            value
              .replace('HOST', hostOf(indexOf(one)))
              .replace('PORT', String(port))
              .replace('UPSTREAM', upstream),
          ] as const,
      );
      const withBody = body === undefined ? {} : { body };
      if (wire === 'http2') {
        return sendHttp2(port, { method, target, headers: fields, ...withBody }, host);
      }
      const all = isNamed ? fields : [['Host', host] as const, ...fields];
      return send(`http://127.0.0.1:${port}/`, {
        method,
        target,
        headers: all,
        ...withBody,
      });
    },
  };
}

/** Starts the library with these cases. */
export async function startHubgate(
  owner: Owner,
  cases: readonly ComparedCase[],
  indexOf: (one: ComparedCase) => number,
  around: Surroundings,
  wire: Wire = 'http1',
): Promise<Served> {
  const port = await freePort();
  const secure = String(await freePort());
  const options = hubgateOptions(around);
  const written = configurationOf(cases, indexOf, around, port, options, wire);
  const text = written.replaceAll('SECURE', secure);
  const gateway = createGateway(parseHubfile(text, { env: {} }), { log: silentLogger });
  owner.after(() => gateway.stop());
  await gateway.start();
  return served(port, indexOf, around, wire);
}

export function hubgateOptions({ directory }: Surroundings): string {
  return `admin off\ndefault_bind 127.0.0.1\nstorage ${mkdtempSync(join(directory, 'storage-'))}\n`;
}

/** The Caddy that is asked: the given one, or Debian's; null without one. */
export function caddyOf(test: TestContext, given: string | undefined): string | null {
  if (given === undefined) return programPath(test, 'caddy');
  accessSync(given);
  return given;
}

/** Starts this Caddy with these cases; one whose text it does not take says so when it is asked. */
export async function startCaddy(
  owner: Owner,
  program: string,
  cases: readonly ComparedCase[],
  indexOf: (one: ComparedCase) => number,
  around: Surroundings,
  wire: Wire = 'http1',
): Promise<Served> {
  const port = await freePort();
  const secure = String(await freePort());
  const refused = new Map<ComparedCase, string>();
  for (;;) {
    const taken = cases.filter((one) => !refused.has(one));
    const options = 'admin off\ndefault_bind 127.0.0.1\n';
    const text = configurationOf(taken, indexOf, around, port, options, wire)
      .replaceAll(/^.*# hubgate alone$/gm, '')
      .replaceAll('SECURE', secure);
    const complaint = await runCaddy(owner, program, text, around);
    if (complaint === null) break;
    const line = /Caddyfile:(\d+)/.exec(complaint)?.[1];
    const culprit = line === undefined ? undefined : caseAt(text, Number(line), taken, indexOf);
    if (culprit === undefined) throw new Error(complaint);
    refused.set(culprit, complaint);
  }
  const { ask } = served(port, indexOf, around, wire);
  return {
    port,
    refuses: (one) => refused.has(one),
    ask(one, request) {
      const complaint = refused.get(one);
      return complaint === undefined ? ask(one, request) : Promise.reject(new Error(complaint));
    },
  };
}

/** The case whose site has this line. */
function caseAt(
  text: string,
  line: number,
  cases: readonly ComparedCase[],
  indexOf: (one: ComparedCase) => number,
): ComparedCase | undefined {
  const before = text.split('\n').slice(0, line).reverse();
  const head = before.find((each) => /^https?:\/\/c\d+\.test/.test(each)) ?? '';
  const index = Number(/\d+/.exec(head)?.[0]);
  return cases.find((one) => one.isWhole || indexOf(one) === index);
}

/** Runs it until its owner ends; what it complains of, or null once it serves. */
async function runCaddy(
  owner: Owner,
  program: string,
  text: string,
  { directory }: Surroundings,
): Promise<string | null> {
  const home = mkdtempSync(join(directory, 'caddy-'));
  const file = join(home, 'Caddyfile');
  writeFileSync(file, text);
  const args = ['run', '--adapter', 'caddyfile', '--config', file];
  const env = { ...process.env, HOME: home, XDG_DATA_HOME: home };
  const caddy = spawn(program, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(caddy, 'exit');
  owner.after(async () => {
    caddy.kill('SIGKILL');
    await exited;
  });
  return new Promise((resolve) => {
    let said = '';
    let isServing = false;
    // Read to the end: a program whose log nobody reads ends.
    caddy.stderr.on('data', (chunk: Buffer) => {
      if (isServing) return;
      said += String(chunk);
      isServing = said.includes('serving initial configuration');
      if (isServing) resolve(null);
    });
    caddy.once('exit', () => resolve(said.slice(said.indexOf('Error'))));
  });
}

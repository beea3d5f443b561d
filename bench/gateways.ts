import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';
import type { BenchContext } from './context.ts';
import { freePort } from '../test/support/free-port.ts';
import { cli, installed, type RunningProgram, startServer } from './processes.ts';
import { TYPESCRIPT } from '../test/support/process.ts';

/** A server in front of the app, as the bench speaks to it. */
export interface BenchGateway {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  /** See `RunningProgram`. */
  ask(order: string): Promise<number>;
  /** PEM file of the authority behind its certificate; null over plain TCP. */
  readonly caFile: string | null;
  stop(): Promise<void>;
}

export interface Front {
  readonly tls: boolean;
  readonly appPort: number;
  /** Processes or threads; null for what the program does by itself. */
  readonly cores: number | null;
  /** Whether it keeps what the app answers, where it can. */
  readonly cached?: boolean;
  /** Options of Node, for programs that run on it; they get a channel then. */
  readonly nodeOptions?: readonly string[];
  /** Cores to which the program is bound, as `taskset` takes them. */
  readonly cpus?: string;
}

export type StartGateway = (context: BenchContext, front: Front) => Promise<BenchGateway | null>;

/** hubgate and its peers, in the order in which they are measured. */
export const GATEWAYS: readonly StartGateway[] = [
  startHubgate,
  startCaddy,
  startNginx,
  startHaproxy,
];

/** The app, in a process of its own. */
export async function startApp(cpus?: string): Promise<RunningProgram & { readonly port: number }> {
  const port = await freePort();
  const program = fileURLToPath(new URL('./load/origin.ts', import.meta.url));
  const args = [...TYPESCRIPT, program, `${port}`];
  const options = cpus === undefined ? {} : { cpus };
  const app = await startServer(process.execPath, args, port, options);
  return { ...app, port };
}

/** With a hub and discovery, as its users run it. */
export async function startHubgate(context: BenchContext, front: Front): Promise<BenchGateway> {
  const { tls, appPort, cores, cached = false } = front;
  const { cert, key } = certificate(context);
  const port = await freePort();
  const directory = context.directory();
  const origin = `${tls ? 'https' : 'http'}://localhost:${port}`;
  const hubfile = join(directory, 'Hubfile');
  writeFileSync(
    hubfile,
    `{
	storage ${directory}
	admin off
	${cores === null ? '' : `workers ${cores}`}
	auto_https disable_redirects
}
${origin} {
	${tls ? `tls ${cert} ${key}` : ''}
	hub {
		issuer https://issuer.example.com {
			publisher {
				jwt 0123456789abcdef0123456789abcdef
			}
			subscriber {
				jwt 0123456789abcdef0123456789abcdef
			}
		}
		anonymous
		${cores !== null && cores > 1 ? 'transport lmdb' : 'transport memory'}
		cookie_name hub_token
	}
	discovery
	${cached ? 'cache {\n\t\tttl 1d\n\t}' : ''}
	reverse_proxy 127.0.0.1:${appPort}
}
`,
  );
  const program = await startNode(context, front, [cli, 'run', '--config', hubfile], port);
  return { name: 'hubgate', port, caFile: tls ? cert : null, ...program };
}

/** What a proxy of Node's own servers and undici costs, or a server that holds what it sends. */
export function startFloor(context: BenchContext, front: Front): Promise<BenchGateway> {
  const name = front.cached === true ? 'cached-floor' : 'floor';
  return startBareProgram(context, front, 'bare Node', name);
}

/** The least that a proxy over HTTP/1.1, or a server of what it holds, costs on the sockets of the same Node. */
export function startSocketsFloor(context: BenchContext, front: Front): Promise<BenchGateway> {
  const { appPort, cached = false } = front;
  const own = { ...front, appPort: cached ? 0 : appPort };
  return startBareProgram(context, own, SOCKETS_ALONE, 'sockets-floor');
}

/** It does not speak HTTP/2. */
export const SOCKETS_ALONE = 'sockets alone';

async function startBareProgram(
  context: BenchContext,
  front: Front,
  name: string,
  source: string,
): Promise<BenchGateway> {
  const { cert, key } = certificate(context);
  const port = await freePort();
  const secure = front.tls ? [cert, key] : [];
  const args = [bundled(context, source), String(port), String(front.appPort), ...secure];
  const program = await startNode(context, front, args, port);
  return { name, port, caFile: front.tls ? cert : null, ...program };
}

function startNode(
  context: BenchContext,
  { nodeOptions = [], cpus }: Front,
  args: readonly string[],
  port: number,
): Promise<RunningProgram> {
  return startServer(context.node, [...nodeOptions, ...args], port, {
    channel: nodeOptions.length > 0,
    ...(cpus === undefined ? {} : { cpus }),
  });
}

const floors = new WeakMap<BenchContext, Map<string, string>>();

/** Bundled as hubgate is, so that loading sources does not count. */
function bundled(context: BenchContext, name: string): string {
  const built = floors.get(context) ?? new Map<string, string>();
  floors.set(context, built);
  const present = built.get(name);
  if (present !== undefined) return present;
  const outfile = join(context.directory(), `${name}.cjs`);
  const source = fileURLToPath(new URL(`./load/${name}.ts`, import.meta.url));
  const undici = fileURLToPath(new URL('./load/undici-client.cjs', import.meta.url));
  buildSync({
    entryPoints: [source],
    bundle: true,
    platform: 'node',
    format: 'cjs',
    outfile,
    alias: { undici },
  });
  built.set(name, outfile);
  return outfile;
}

/** The Caddy of the present version that HUBGATE_CADDY names, or the one in the reference hub; null where neither is. */
export function currentCaddy(): string | null {
  return process.env['HUBGATE_CADDY'] ?? installed('mercure-ref');
}

export async function startCurrentCaddy(
  context: BenchContext,
  front: Front,
): Promise<BenchGateway | null> {
  const caddy = currentCaddy();
  if (caddy === null) {
    context.skip('Caddy, current', 'HUBGATE_CADDY names none');
    return null;
  }
  return runCaddy(context, front, caddy, 'Caddy, current');
}

export async function startCaddy(
  context: BenchContext,
  front: Front,
): Promise<BenchGateway | null> {
  const caddy = installed('caddy');
  if (caddy === null) return missing(context, 'caddy');
  return runCaddy(context, front, caddy, 'Caddy');
}

async function runCaddy(
  context: BenchContext,
  { tls, appPort, cores, cpus }: Front,
  caddy: string,
  name: string,
): Promise<BenchGateway> {
  const { cert, key } = certificate(context);
  const port = await freePort();
  const directory = context.directory();
  const config = join(directory, 'Caddyfile');
  writeFileSync(
    config,
    `{
	admin off
	auto_https off
}
${tls ? 'https' : 'http'}://localhost:${port} {
	${tls ? `tls ${cert} ${key}` : ''}
	reverse_proxy 127.0.0.1:${appPort}
}
`,
  );
  const env = {
    XDG_DATA_HOME: directory,
    XDG_CONFIG_HOME: directory,
    ...(cores === null ? {} : { GOMAXPROCS: String(cores) }),
  };
  const program = await startServer(
    caddy,
    ['run', '--config', config, '--adapter', 'caddyfile'],
    port,
    { env, ...(cpus === undefined ? {} : { cpus }) },
  );
  return { name, port, caFile: tls ? cert : null, ...program };
}

export async function startNginx(
  context: BenchContext,
  { tls, appPort, cores, cached = false }: Front,
): Promise<BenchGateway | null> {
  const nginx = installed('nginx');
  if (nginx === null) return missing(context, 'nginx');
  const { cert, key } = certificate(context);
  const port = await freePort();
  const directory = context.directory();
  const config = join(directory, 'nginx.conf');
  writeFileSync(
    config,
    `daemon off;
worker_processes ${cores ?? 'auto'};
pid ${directory}/nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
	access_log off;
	client_max_body_size 0;
	proxy_request_buffering off;
	${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((one) => `${one}_temp_path ${directory};`).join('\n\t')}
	${cached ? `proxy_cache_path ${directory}/cache keys_zone=pages:10m;` : ''}
	keepalive_requests 1000000000;
	upstream app { server 127.0.0.1:${appPort}; keepalive 128; keepalive_requests 1000000000; }
	server {
		listen 127.0.0.1:${port}${tls ? ' ssl http2' : ''};
		${tls ? `ssl_certificate ${cert}; ssl_certificate_key ${key};` : ''}
		location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; ${cached ? 'proxy_cache pages; proxy_cache_valid 1d;' : ''} }
	}
}
`,
  );
  const program = await startServer(nginx, ['-c', config, '-e', 'stderr'], port);
  return { name: 'nginx', port, caFile: tls ? cert : null, ...program };
}

/** Debian's Varnish speaks neither TLS nor, to browsers, HTTP/2. */
export async function startVarnish(
  context: BenchContext,
  { tls, appPort, cores }: Front,
): Promise<BenchGateway | null> {
  const varnish = installed('varnishd');
  if (varnish === null) return missing(context, 'varnishd');
  if (tls) {
    context.skip('Varnish, TLS', 'Varnish does not speak TLS');
    return null;
  }
  const port = await freePort();
  // With its jail, another user could not read the directory.
  const listening = ['-F', '-j', 'none', '-a', `127.0.0.1:${port}`, '-n', context.directory()];
  const keeping = ['-b', `127.0.0.1:${appPort}`, '-t', '86400', '-s', 'malloc,256m'];
  const threads = cores === null ? [] : ['-p', `thread_pools=${cores}`];
  const program = await startServer(varnish, [...listening, ...keeping, ...threads], port);
  return { name: 'Varnish', port, caFile: null, ...program };
}

async function startHaproxy(
  context: BenchContext,
  { tls, appPort, cores }: Front,
): Promise<BenchGateway | null> {
  const haproxy = installed('haproxy');
  if (haproxy === null) return missing(context, 'haproxy');
  const { both, cert } = certificate(context);
  const port = await freePort();
  const directory = context.directory();
  const config = join(directory, 'haproxy.cfg');
  writeFileSync(
    config,
    `global
	${cores === null ? '' : `nbthread ${cores}`}
defaults
	mode http
	timeout client 60s
	timeout server 60s
	timeout connect 5s
frontend front
	bind 127.0.0.1:${port}${tls ? ` ssl crt ${both} alpn h2,http/1.1` : ''}
	default_backend app
backend app
	server app 127.0.0.1:${appPort}
`,
  );
  const program = await startServer(haproxy, ['-f', config, '-db'], port);
  return { name: 'HAProxy', port, caFile: tls ? cert : null, ...program };
}

function missing(context: BenchContext, name: string): null {
  context.skip(name, `${name} is not installed`);
  return null;
}

const certificates = new WeakMap<BenchContext, { cert: string; key: string; both: string }>();

/** What `transfer` speaks to: each program on a port for each of these. */
export interface TransferPorts {
  readonly plain: number;
  readonly tls: number;
  readonly grpc: number;
  readonly fastcgi: number;
}

/** hubgate and Caddy with the same file, before the apps of `transfer`; `files` has what is served. */
export async function startForTransfer(
  context: BenchContext,
  apps: TransferPorts,
  files: string,
): Promise<(BenchGateway & { readonly ports: TransferPorts })[]> {
  const { cert, key } = certificate(context);
  const caddy = installed('mercure-ref') ?? installed('caddy');
  if (caddy === null) missing(context, 'caddy');
  const programs: [string, string, string[], string][] = [
    ['hubgate', context.node, [cli, 'run', '--no-watch', '--config'], 'disable_redirects'],
  ];
  if (caddy !== null) {
    programs.push(['Caddy', caddy, ['run', '--adapter', 'caddyfile', '--config'], 'off']);
  }
  const started = programs.map(async ([name, command, args, autoHttps]) => {
    const directory = context.directory();
    const [plain, tls, grpc, fastcgi] = [
      await freePort(),
      await freePort(),
      await freePort(),
      await freePort(),
    ];
    const site = `
	handle /large.bin {
		root * ${files}
		file_server
	}
	handle {
		reverse_proxy 127.0.0.1:${apps.plain}
	}
}`;
    const file = join(directory, 'Hubfile');
    writeFileSync(
      file,
      `{
	${name === 'hubgate' ? `storage ${directory}` : ''}
	admin off
	auto_https ${autoHttps}
}
http://localhost:${plain} {${site}
https://localhost:${tls} {
	tls ${cert} ${key}${site}
https://localhost:${grpc} {
	tls ${cert} ${key}
	reverse_proxy h2c://127.0.0.1:${apps.grpc}
}
http://localhost:${fastcgi} {
	reverse_proxy 127.0.0.1:${apps.fastcgi} {
		transport fastcgi {
			root ${files}
		}
	}
}
`,
    );
    const env = { XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory, GOMAXPROCS: '1' };
    const program = await startServer(command, [...args, file], plain, { env });
    return { name, port: plain, caFile: cert, ports: { plain, tls, grpc, fastcgi }, ...program };
  });
  return Promise.all(started);
}

/** One self-signed ECDSA certificate for localhost, the same for all programs of a run. */
export function certificate(context: BenchContext): { cert: string; key: string; both: string } {
  const present = certificates.get(context);
  if (present !== undefined) return present;
  const directory = context.directory();
  const cert = join(directory, 'cert.pem');
  const key = join(directory, 'key.pem');
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  const files = ['-keyout', key, '-out', cert, '-days', '2', '-nodes'];
  execFileSync('openssl', ['req', '-x509', ...curve, ...names, ...files], { stdio: 'ignore' });
  const both = join(directory, 'both.pem');
  writeFileSync(both, execFileSync('cat', [cert, key]), { mode: 0o600 });
  const made = { cert, key, both };
  certificates.set(context, made);
  return made;
}

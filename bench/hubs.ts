import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BenchContext } from './context.ts';
import { freePort } from '../test/support/free-port.ts';
import { currentCaddy, type StartGateway } from './gateways.ts';
import { cli, installed, listenerOf, startServer } from './processes.ts';

/** A server that publishes and subscribes, as the bench speaks to it. */
export interface Hub {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  /** PEM file of the authority behind its certificate; null over plain TCP. */
  readonly caFile: string | null;
  /** A whole request that opens a stream on a topic. */
  subscribe(topic: string, cursor?: string): string;
  /** A whole request that publishes `data`. */
  publish(topic: string, data: string): string;
  stop(): Promise<void>;
}

export interface HubSettings {
  readonly tls?: boolean;
  /** Lines of the hub's block; a memory log by default. */
  readonly transport?: string;
  readonly workers?: number;
}

const KEY = '0123456789abcdef0123456789abcdef';

/** The built gateway, run as a user runs it. */
export async function startHubgate(
  context: BenchContext,
  { tls = false, transport = 'transport memory', workers = 1 }: HubSettings = {},
): Promise<Hub> {
  const port = await freePort();
  const directory = context.directory();
  const origin = `${tls ? 'https' : 'http'}://localhost:${port}`;
  const keys = `publisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt ${KEY}\n\t\t\t}`;
  const hubfile = join(directory, 'Hubfile');
  writeFileSync(
    hubfile,
    `{
	storage ${directory}
	admin off
	workers ${workers}
	auto_https disable_redirects
}
${origin} {
	hub {
		issuer https://issuer.example.com {
			${keys}
		}
		resource_identifier https://hub.example.com/.well-known/hub
		anonymous
		${transport}
	}
}
`,
  );
  const program = await startServer(context.node, [cli, 'run', '--config', hubfile], port);
  const token = hubgateToken('hub', 'https://hub.example.com/.well-known/hub');
  return {
    name: 'hubgate',
    pid: program.pid,
    port,
    caFile: tls ? join(directory, 'pki', 'local', 'root.crt') : null,
    ...protocol('/.well-known/hub', `localhost:${port}`, token),
    stop: () => program.stop(),
  };
}

/** A hub in profile `mercure` that somebody has started: `--peer-hub URL`. */
export function peerHub(url: string): Hub {
  const { hostname, port, pathname } = new URL(url);
  const pid = listenerOf(Number(port));
  if (pid === null) throw new Error(`Nothing that can be measured listens on ${url}`);
  const audience = process.env['BENCH_PEER_AUDIENCE'] ?? `https://hub.example.com${pathname}`;
  return {
    name: 'peer hub',
    pid,
    port: Number(port),
    caFile: null,
    ...protocol(pathname, `${hostname}:${port}`, hubgateToken('mercure', audience)),
    stop: async () => {},
  };
}

/** The hub inside the current Caddy, where that has one; `bolt` keeps its history on the disk. */
export async function startReferenceHub(
  context: BenchContext,
  transport: 'local' | 'bolt' = 'local',
): Promise<Hub | null> {
  const caddy = currentCaddy();
  if (caddy === null || !hasHub(caddy)) {
    context.skip('reference hub', 'HUBGATE_CADDY names no Caddy with a hub');
    return null;
  }
  const port = await freePort();
  const directory = context.directory();
  const config = join(directory, 'Caddyfile');
  const keys = `publisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt ${KEY}\n\t\t\t}`;
  writeFileSync(
    config,
    `{
	admin off
	auto_https off
}
http://127.0.0.1:${port} {
	mercure {
		issuer https://issuer.example.com {
			${keys}
		}
		resource_identifier https://hub.example.com/.well-known/mercure
		anonymous
		${transport === 'local' ? 'transport local' : `transport bolt {\n\t\t\tpath ${directory}/history.db\n\t\t}`}
	}
	respond 404
}
`,
  );
  const env = { XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory };
  const args = ['run', '--config', config, '--adapter', 'caddyfile'];
  const program = await startServer(caddy, args, port, { env });
  const hub = peerHub(`http://127.0.0.1:${port}/.well-known/mercure`);
  return { ...hub, name: 'reference hub', pid: program.pid, stop: () => program.stop() };
}

function hasHub(caddy: string): boolean {
  const modules = execFileSync(caddy, ['list-modules'], { encoding: 'utf8' });
  return modules.includes('http.handlers.mercure');
}

/** What Node alone needs for a stream. */
export async function startFloorHub(
  context: BenchContext,
  start: StartGateway,
  tls: boolean,
): Promise<Hub | null> {
  const floor = await start(context, { tls, cores: null, appPort: 0 });
  if (floor === null) return null;
  const { name, port, pid, caFile, stop } = floor;
  const stream = protocol('/.well-known/hub', `localhost:${port}`, '');
  return { name, port, pid, caFile, ...stream, stop };
}

/** nginx with the nchan module of Debian; null where they are not installed. */
export async function startNchan(context: BenchContext): Promise<Hub | null> {
  const nginx = installed('nginx');
  const module = '/usr/lib/nginx/modules/ngx_nchan_module.so';
  if (nginx === null || !context.has(module)) {
    context.skip('nchan', 'nginx with libnginx-mod-nchan is not installed');
    return null;
  }
  const port = await freePort();
  const directory = context.directory();
  mkdirSync(join(directory, 'logs'));
  const config = join(directory, 'nginx.conf');
  writeFileSync(
    config,
    `load_module ${module};
daemon off;
master_process off;
pid ${directory}/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 65536;
events { worker_connections 20000; }
http {
	access_log off;
	client_body_temp_path ${directory}/logs;
	proxy_temp_path ${directory}/logs;
	fastcgi_temp_path ${directory}/logs;
	uwsgi_temp_path ${directory}/logs;
	scgi_temp_path ${directory}/logs;
	keepalive_requests 1000000000;
	nchan_shared_memory_size 256M;
	server {
		listen 127.0.0.1:${port};
		location ~ ^/pub/(.*)$ { nchan_publisher; nchan_channel_id $1; nchan_message_buffer_length 100000; nchan_message_timeout 1h; }
		location ~ ^/sub/(.*)$ { nchan_subscriber eventsource; nchan_channel_id $1; nchan_subscriber_first_message newest; }
	}
}
`,
  );
  const program = await startServer(nginx, ['-c', config, '-e', 'stderr'], port);
  const channel = (topic: string): string => topic.replace(/[^a-z0-9]/gi, '');
  return {
    name: 'nchan',
    pid: program.pid,
    port,
    caFile: null,
    subscribe: (topic) =>
      `GET /sub/${channel(topic)} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n`,
    publish: (topic, data) =>
      `POST /pub/${channel(topic)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(data)}\r\n\r\n${data}`,
    stop: () => program.stop(),
  };
}

function protocol(path: string, host: string, token: string): Pick<Hub, 'subscribe' | 'publish'> {
  return {
    subscribe(topic, cursor) {
      const query = new URLSearchParams({ match: topic });
      if (cursor !== undefined) query.set('last_event_id', cursor);
      return `GET ${path}?${query.toString()} HTTP/1.1\r\nHost: ${host}\r\nAccept: text/event-stream\r\n\r\n`;
    },
    publish(topic, data) {
      const body = new URLSearchParams({ topic, data }).toString();
      return `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    },
  };
}

function hubgateToken(profile: 'hub' | 'mercure', audience: string): string {
  const flags = ['--iss', 'https://issuer.example.com', '--aud', audience, '--key', KEY];
  const grants = ['--publish', '*', '--subscribe', '*', '--profile', profile, '--ttl', '1d'];
  return execFileSync(process.execPath, [cli, 'token', ...flags, ...grants], {
    encoding: 'utf8',
  }).trim();
}

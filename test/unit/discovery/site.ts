import { mkdtemp } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { LogFields, Logger } from '../../../src/kernel/log.ts';
import { freePort } from '../../support/free-port.ts';
import { type Answer, openStream, type RawRequest, send, type Stream } from '../../support/http.ts';
import { signToken } from '../../support/hub-server.ts';
import { createGateway, parseHubfile } from '../../support/installed-package.ts';
import { removeWith } from '../../support/temporary-directory.ts';

export const PUBLISHER_KEY = 'a publisher key of more than 32 bytes, for tests';
export const SUBSCRIBER_KEY = 'a subscriber key of more than 32 bytes, for tests';
export const ISSUER = 'https://issuer.example';
export const COOKIE = '__Secure-hub_access_token';
export const MARK = `${COOKIE}_session`;

interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

/** A gateway with one site, a hub and an app behind it. */
export interface Site {
  /** `http://localhost:PORT`, which browsers count as secure. */
  readonly origin: string;
  readonly hub: string;
  readonly appOrigin: string;
  readonly log: readonly LogLine[];
  get(path: string, options?: RawRequest): Promise<Answer>;
  /** Loads the file that it was started with, with this in place of that. */
  reload(from: string, to: string): Promise<void>;
  /** Publishes and resolves to the id. */
  publish(fields: Record<string, string>): Promise<string>;
  stream(query: string, options?: RawRequest): Promise<Stream>;
  /** A token that the hub accepts. */
  token(claims?: Record<string, unknown>): Promise<string>;
  /** Stops the gateway, as the end of the test would. */
  stop(): Promise<void>;
}

export interface SiteOptions {
  /** Lines of the site beside `hub` and `reverse_proxy`. */
  readonly site?: string;
  /** Lines of the hub beside its issuer. */
  readonly hub?: string;
  /** Adds to the app's server. */
  readonly prepare?: (server: Server) => void;
  /** Instead of the whole file; `{port}` and `{app}` stand for the ports. */
  readonly hubfile?: string;
}

export const HUB = `
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "${PUBLISHER_KEY}"
			}
			subscriber {
				jwt "${SUBSCRIBER_KEY}"
			}
		}
		transport memory
`;

/** A site with live pages, for `hubfile` of {@link startSite}. `changes` is what its `discovery` says besides `live`. */
export function liveHubfile(changes = 'changes public'): string {
  return `http://localhost:{port} {${HUB}
		anonymous
		cookie_name hub_token
	}
	discovery {
		${changes}
		live
	}
	reverse_proxy localhost:{app}
}
`;
}

export async function startSite(
  test: TestContext,
  app: RequestListener,
  { site = '', hub = 'anonymous', hubfile, prepare }: SiteOptions = {},
): Promise<Site> {
  const appPort = await listen(test, app, prepare);
  const port = await freePort();
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-discovery-'));
  removeWith(test, storage);
  const text =
    hubfile ??
    `http://localhost:{port} {${HUB}
		cookie_name ${COOKIE}
		${hub}
	}
	${site}
	reverse_proxy localhost:{app}
}
`;
  const hubfileText = `{\n\tstorage ${storage}\n\tgrace_period 100ms\n\tauto_https disable_redirects\n}\n${text.replaceAll('{port}', String(port)).replaceAll('{app}', String(appPort))}`;
  const log: LogLine[] = [];
  const gateway = createGateway(parseHubfile(hubfileText), { log: recorder(log, {}) });
  await gateway.start();
  test.after(() => gateway.stop());
  const origin = `http://localhost:${port}`;
  const hubUrl = `${origin}/.well-known/hub`;
  return {
    origin,
    hub: hubUrl,
    appOrigin: `http://localhost:${appPort}`,
    log,
    get: (path, options) => send(origin + path, options),
    async reload(from, to) {
      if (!hubfileText.includes(from)) throw new Error(`there is no ${from}`);
      await gateway.reload(parseHubfile(hubfileText.replaceAll(from, to)));
    },
    async publish(fields) {
      const token = await signToken(PUBLISHER_KEY, {
        iss: ISSUER,
        aud: hubUrl,
        authorization_details: [detail('publish', '*')],
      });
      const response = await fetch(hubUrl, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
        body: new URLSearchParams(fields),
      });
      if (!response.ok) throw new Error(`${response.status}`);
      return response.text();
    },
    stop: () => gateway.stop(),
    stream: (query, options) => openStream(test, `${hubUrl}?${query}`, options),
    token: (claims = {}) =>
      signToken(SUBSCRIBER_KEY, {
        iss: ISSUER,
        aud: hubUrl,
        jti: 'urn:token:1',
        authorization_details: [detail('subscribe', '*')],
        ...claims,
      }),
  };
}

export function detail(action: string, ...matches: string[]): object {
  return {
    type: 'urn:hub:authorization-detail',
    actions: [action],
    topics: matches.map((match) => ({ match })),
  };
}

/** Serves on a port of its own until the test ends. */
export async function listen(
  test: TestContext,
  app: RequestListener,
  prepare: (server: Server) => void = () => {},
): Promise<number> {
  const server = createServer(app);
  prepare(server);
  await new Promise<void>((resolve) => server.listen(0, 'localhost', resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** The values of a response field as they were sent. */
export function fields(answer: Answer, name: string): string[] {
  return answer.rawHeaders.filter(
    (_, index) => index % 2 === 1 && answer.rawHeaders[index - 1]?.toLowerCase() === name,
  );
}

/** The cookies that an answer sets, by name, with their attributes in lower case. */
export function cookies(answer: Answer): Map<string, Map<string, string>> {
  return new Map(
    fields(answer, 'set-cookie').map((field) => {
      const [first = '', ...attributes] = field.split('; ');
      const [name, value] = pair(first);
      return [
        name,
        new Map([
          ['value', value],
          ...attributes.map((one) => {
            const [key, text] = pair(one);
            return [key.toLowerCase(), text] as const;
          }),
        ]),
      ];
    }),
  );
}

/** The `Cookie` field with which a browser answers. */
export function cookieHeader(answer: Answer): readonly [string, string] {
  const pairs = [...cookies(answer)].map(([name, cookie]) => `${name}=${cookie.get('value')}`);
  return ['Cookie', pairs.join('; ')];
}

/** A promise that somebody else settles. */
export function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** The claims of a token. */
export function claimsOf(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
}

function pair(text: string): [string, string] {
  const equals = text.indexOf('=');
  return equals === -1 ? [text, ''] : [text.slice(0, equals), text.slice(equals + 1)];
}

function recorder(lines: LogLine[], common: LogFields): Logger {
  const write = (level: string) => (message: string, more?: LogFields) => {
    lines.push({ level, message, fields: { ...common, ...more } });
  };
  return {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: (more) => recorder(lines, { ...common, ...more }),
  };
}

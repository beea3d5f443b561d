import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess, TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

/** A Caddy of the present version; Debian's lacks some of the filters. */
const caddy = process.env['HUBGATE_CADDY'];

type Line = Record<string, unknown>;

/** What both programs answer, with the lines of their logs. FORMAT is what each calls Caddy's own. */
const TEXT = `{
	admin off
	HUBGATE
}
http://127.0.0.1:PORT {
	log web {
		output file OUTPUT
		format FORMAT
	}
	log_append kind test
	header X-Answer yes
	respond /broken gone 503
	respond ok
}
`;

const REQUESTS = [
  [
    '/p?a=1&b=2&c=3&d=4',
    'X-One: 1',
    'X-Two: a',
    'X-Two: b',
    'User-Agent: curl/8.1',
    'X-Ip: 1.2.3.4',
  ],
  ['/broken', 'X-Ip: 10.1.2.3, 2001:db8:1:2::3', 'Cookie: a=b', 'Authorization: Basic YTpi'],
];

async function ask(port: number): Promise<void> {
  for (const [target = '', ...fields] of REQUESTS) {
    const headers = fields
      .map((field) => field.split(': '))
      .map(([name = '', value = '']) => [name, value] as const);
    await send(`http://127.0.0.1:${port}${target}`, { headers });
  }
}

/** The lines of a log, without what differs from run to run. */
function linesOf(file: string): Line[] {
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return lines.map((text) => {
    const {
      request,
      resp_headers,
      bytes_read: _,
      request_id: _id,
      ...line
    }: Line = JSON.parse(text);
    const {
      Server: _server,
      Date: _date,
      'Content-Length': _length,
      ...response
    } = Object(resp_headers);
    const { remote_port: _port, host: _host, ...asked } = Object(request);
    const { Connection: _connection, ...headers } = Object(asked.headers);
    const shape = Object.fromEntries(
      Object.entries(line).map(([name, value]) =>
        /^(?:ts|at|duration)$/.test(name) ? [name, typeof value] : [name, value],
      ),
    );
    return { ...shape, request: { ...asked, headers }, response };
  });
}

function textFor(port: number, output: string, format: string, own: string): string {
  const texts = { PORT: String(port), OUTPUT: output, FORMAT: format, HUBGATE: own };
  return Object.entries(texts).reduce((text, [name, value]) => text.replace(name, value), TEXT);
}

async function caddyLines(test: TestContext, program: string, format: string): Promise<Line[]> {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const [file, config] = [join(directory, 'access.log'), join(directory, 'Caddyfile')];
  writeFileSync(config, textFor(port, file, format, ''));
  const args = ['run', '--adapter', 'caddyfile', '--config', config];
  const env = { HOME: directory, XDG_DATA_HOME: directory };
  const child = new TestProcess(args, env, directory, { program });
  test.after(() => child.end('SIGKILL'));
  await child.says('serving initial configuration');
  await ask(port);
  await child.end('SIGTERM');
  return linesOf(file);
}

async function hubgateLines(test: TestContext, format: string): Promise<Line[]> {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const [file, config] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
  writeFileSync(config, textFor(port, file, format, `storage ${directory}`));
  const gateway = startProcess(test, [cli, 'run', '--config', config]);
  await gateway.says(`:${port}`);
  await ask(port);
  assert.equal(await gateway.end('SIGTERM'), 0);
  return linesOf(file);
}

const FILTER = `filter {
			wrap JSON {
				time_key at
				level_format upper
			}
			fields {
				request>uri query {
					delete b
					replace a X
				}
				request>remote_ip ip_mask 16 32
				request>headers>X-Ip ip_mask {
					ipv4 8
					ipv6 32
				}
				request>headers>User-Agent regexp c(.)r \${1}Z
				request>headers>X-One delete
				request>headers>X-Two hash
				request>headers>Accept-Encoding delete
				status rename code
				kind replace other
				user_id delete
			}
		}`;

describe('log lines in the format of Caddy', () => {
  const formats = {
    plain: 'JSON',
    'with filters': FILTER,
    appended: 'append {\n\t\t\twrap JSON\n\t\t\tenv test\n\t\t}',
  };
  for (const [title, format] of Object.entries(formats)) {
    it(title, async (test) => {
      const own = await hubgateLines(test, format.replace('JSON', 'caddy'));
      assert.equal(own.length, REQUESTS.length);
      if (caddy === undefined) {
        test.skip('HUBGATE_CADDY names no Caddy');
        return;
      }
      assert.deepEqual(own, await caddyLines(test, caddy, format.replace('JSON', 'json')));
    });
  }
});

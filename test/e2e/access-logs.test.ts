import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('access logs', () => {
  it('each contain the lines of their hosts, at their level and under their name, with the fields of log_append', async (test) => {
    const directory = await temporaryDirectory(test);
    const port = await freePort();
    const file = (name: string): string => join(directory, `${name}.log`);
    const log = (name: string, more: string): string =>
      `\tlog ${name} {\n\t\toutput file ${file(name)}\n\t\tformat json\n\t\t${more}\n\t}\n`;
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{
	storage ${directory}
	admin off
	log everything {
		include http.log.access
		exclude http.log.access.errors
		output file ${file('everything')}
		format json
	}
}
http://a.localhost:${port}, http://b.localhost:${port} {
${log('a', 'hostnames a.localhost')}${log('errors', 'level error')}${log('audit', 'no_hostname')}	log_skip /skipped
	log_name /admin/* audit
	log_append * answered {http.response.header.X-Who}
	log_append * token {uri}
	log_append * mixed "{query.page} {query.token} {cookie.session} {header.X-Api-Key}."
	vars kept kept
	log_append * <early {vars.kept}
	header X-Who me
	error /broken 500
	respond ok
}
`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const ask = (host: string, path: string) =>
      send(`http://127.0.0.1:${port}${path}`, {
        headers: [
          ['Host', `${host}.localhost:${port}`],
          ['Cookie', 'session=s3cret'],
          ['X-Api-Key', 's3cret'],
        ],
      });
    await ask('a', '/one?page=2&token=s3cret');
    await ask('b', '/two');
    await ask('a', '/broken');
    await ask('b', '/admin/x');
    await ask('a', '/skipped');
    assert.equal(await gateway.end('SIGTERM'), 0);
    const read = async (name: string): Promise<Record<string, unknown>[]> => {
      const text = await readFile(file(name), 'utf8');
      assert.ok(!text.includes('s3cret'), text);
      const lines = text.split('\n').filter((line) => line !== '');
      return lines.map((line): Record<string, unknown> => JSON.parse(line));
    };
    const paths = async (name: string) => (await read(name)).map((line) => line['url.path']);
    assert.deepEqual(await paths('a'), ['/one', '/broken']);
    assert.deepEqual(await paths('errors'), ['/broken']);
    assert.deepEqual(await paths('audit'), ['/admin/x']);
    assert.deepEqual(await paths('everything'), ['/one', '/broken', '/admin/x']);
    const [first] = await read('a');
    assert.deepEqual(
      [first?.['token'], first?.['mixed'], first?.['answered'], first?.['early']],
      ['REDACTED', '2 REDACTED REDACTED REDACTED.', 'me', 'kept'],
    );
  });

  it('hide credentials that log_append gets by way of a query, a variable or a pattern', async (test) => {
    const directory = await temporaryDirectory(test);
    const port = await freePort();
    const file = join(directory, 'access.log');
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{
	storage ${directory}
	admin off
}
http://localhost:${port} {
	log {
		output file ${file}
		format json
	}
	log_append a {query}
	log_append b {orig_query}
	log_append c {http.request.uri.query}
	log_append d "asked for {query}"
	log_append e q={query}
	log_append f {vars.authorization_field}
	log_append g {vars.kept}
	log_append h {re.scheme.1}
	log_append i "{re.crumb.1} {vars.parameter}"
	log_append <j {header.X-Forwarded-For-Auth-Header}
	vars authorization_field {header.Authorization}
	vars kept {header.Authorization}
	vars parameter {query.access_token}
	@bearer {
		header_regexp scheme Authorization "^Bearer (.*)$"
		header_regexp crumb Cookie "session=(.*)"
	}
	request_header @bearer -Authorization
	request_header -Cookie
	error /broken "asked with {query.access_token}" 500
	respond ok
}
`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const queries = [
      'access_token=TOPSECRET1&b=2',
      'token=TOPSECRET1',
      'ACCESS_TOKEN=TOPSECRET1',
      'authorization=TOPSECRET1',
      'access%5Ftoken=TOPSECRET1',
      'api_key=TOPSECRET1',
      'id_token=TOPSECRET1',
      'next=/cb%3Faccess_token%3DTOPSECRET1',
      'next=/cb%253Faccess_token%253DTOPSECRET1',
    ];
    for (const query of queries) {
      await send(`http://localhost:${port}/?${query}`, {
        headers: [
          ['Authorization', 'Bearer TOPSECRET2'],
          ['Cookie', 'session=TOPSECRET3'],
          ['X-Forwarded-For-Auth-Header', 'Bearer TOPSECRET4'],
          ['X-Forwarded-Authorization', 'TOPSECRET5'],
          ['X-Basic', 'Basic dXNlcjpUT1BTRUNSRVQ='],
        ],
      });
    }
    await send(`http://localhost:${port}/broken?access_token=TOPSECRET1`);
    assert.equal(await gateway.end('SIGTERM'), 0);
    assert.ok(gateway.output.includes('asked with REDACTED'), gateway.output);
    assert.ok(!gateway.output.includes('TOPSECRET'), gateway.output);
    const text = await readFile(file, 'utf8');
    assert.ok(!/TOPSECRET|dXNlcjpU/.test(text), text);
    const [first = ''] = text.split('\n');
    const line: Record<string, unknown> = JSON.parse(first);
    assert.deepEqual(
      ['a', 'd', 'e', 'g', 'h', 'i'].map((name) => line[name]),
      [
        'access_token=REDACTED&b=2',
        'asked for access_token=REDACTED&b=2',
        'q=access_token=REDACTED&b=2',
        'REDACTED',
        'REDACTED',
        'REDACTED REDACTED',
      ],
    );
  });

  it('are left out of the log of the gateway by exclude, and have its format otherwise', async (test) => {
    const directory = await temporaryDirectory(test);
    const port = await freePort();
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{
	storage ${directory}
	admin off
	log {
		output stdout
		exclude http.log.access.quiet
		format caddy {
			message_key message
		}
	}
}
http://127.0.0.1:${port} {
	log quiet
	log
	respond ok
}
`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    await send(`http://127.0.0.1:${port}/one`);
    assert.equal(await gateway.end('SIGTERM'), 0);
    const lines = gateway.output.split('\n').filter((line) => line.startsWith('{'));
    const requests = lines.map((line): Record<string, unknown> => JSON.parse(line));
    const handled = requests.filter(({ message }) => message === 'handled request');
    assert.deepEqual(
      handled.map(({ logger, status }) => [logger, status]),
      [['http.log.access', 200]],
    );
  });

  it('contain the responses of handle_errors', async (test) => {
    const directory = await temporaryDirectory(test);
    const port = await freePort();
    const file = join(directory, 'access.log');
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{
	storage ${directory}
	admin off
}
http://localhost:${port} {
	log {
		output file ${file}
		format json
	}
	vars kept before
	error /quiet 404
	error /told 404
	handle_errors 404 {
		log_skip /quiet
		vars kept after
		log_append kept {vars.kept}
		log_append who {http.response.header.X-Who}
		header X-Who me
		respond gone
	}
}
`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    for (const path of ['/quiet', '/told']) await send(`http://localhost:${port}${path}`);
    assert.equal(await gateway.end('SIGTERM'), 0);
    const lines = (await readFile(file, 'utf8')).trim().split('\n');
    const told = lines.map((line): Record<string, unknown> => JSON.parse(line));
    assert.deepEqual(
      told.map((line) => [line['url.path'], line['kept'], line['who']]),
      [['/told', 'after', 'me']],
    );
  });
});

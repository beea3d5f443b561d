import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rename, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { createGateway, parseHubfile, silentLogger } from '../../src/index.ts';
import { runCaddy } from '../support/caddy.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** A directory with a configuration and what it imports among its files. */
async function publicRoot(test: TestContext): Promise<string> {
  const base = await mkdtemp(join(tmpdir(), 'hubgate-hidden-'));
  removeWith(test, base);
  const root = join(base, 'public');
  for (const directory of ['conf', 'secret', 'x'])
    await mkdir(join(root, directory), { recursive: true });
  for (const name of ['page.txt', 'a.bak', 'x/a1.log', 'x/a22.log', 'secret/y.txt', 'secretary']) {
    await writeFile(join(root, name), name);
  }
  await writeFile(join(root, 'password'), 'secret of the configuration');
  await symlink(join(root, 'Hubfile'), join(root, 'link'));
  await symlink(root, join(base, 'linked'));
  return root;
}

async function start(test: TestContext, file: string, text: string): Promise<void> {
  await writeFile(file, text);
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-hidden-storage-'));
  removeWith(test, storage);
  const config = parseHubfile(`{\n\tadmin off\n\tstorage ${storage}\n}\n${text}`, {
    file,
    env: {},
  });
  const gateway = createGateway(config, { log: silentLogger });
  test.after(() => gateway.stop());
  await gateway.start();
}

describe('files that no site serves', () => {
  it('are the Hubfile, its imports and the files that its placeholders read', async (test) => {
    const root = await publicRoot(test);
    const port = await freePort();
    await writeFile(join(root, 'conf', 'more'), 'header X-Secret {file.password}\n');
    const site = `http://127.0.0.1:${port} {
	root * ${root}
	import conf/*
	@there {
		path /there/*
		file /Hubfile
	}
	respond @there "there"
	handle_path /linked/* {
		root * ${root}/../linked
		file_server
	}
	route /tried/* {
		try_files /Hubfile /page.txt
		file_server
	}
	route /there/* {
		respond "not there"
	}
	file_server browse
}\n`;
    await start(test, join(root, 'Hubfile'), site);
    const get = async (path: string) => {
      const { status, body } = await send(`http://127.0.0.1:${port}${path}`, {
        headers: [['Accept', 'application/json']],
      });
      return status === 200 ? body : status;
    };
    assert.equal(await get('/page.txt'), 'page.txt');
    for (const path of ['/Hubfile', '/link', '/conf/more', '/password', '/linked/Hubfile']) {
      assert.equal(await get(path), 404, path);
    }
    assert.equal(await get('/linked/page.txt'), 'page.txt');
    assert.equal(await get('/there/x'), 'not there');
    assert.equal(await get('/tried/x'), 'page.txt');
    const names = (listing: unknown): string[] => {
      const entries: { readonly name: string }[] = JSON.parse(String(listing));
      return entries.map(({ name }) => name).filter((name) => !name.endsWith('/'));
    };
    assert.deepEqual(names(await get('/')), ['a.bak', 'page.txt', 'secretary']);
    assert.deepEqual(names(await get('/conf/')), []);
  });

  it('are the keys and histories in a storage below the root', async (test) => {
    const root = await publicRoot(test);
    const files = ['pki/local/root.key', 'certificates/acme/a.key', 'history/a/data.mdb', 'acme/a'];
    for (const name of [...files, 'pki/local/root.crt', 'www/a']) {
      await mkdir(join(root, 'data', name, '..'), { recursive: true });
      await writeFile(join(root, 'data', name), 'x');
    }
    const port = await freePort();
    const site = `http://127.0.0.1:${port} {\n\troot * ${root}\n\tfile_server\n}\n`;
    const options = `{\n\tadmin off\n\tstorage ${root}/data\n}\n`;
    const gateway = createGateway(parseHubfile(options + site, { file: 'Hubfile', env: {} }), {
      log: silentLogger,
    });
    test.after(() => gateway.stop());
    await gateway.start();
    const statusOf = async (name: string): Promise<number> =>
      (await send(`http://127.0.0.1:${port}/data/${name}`)).status;
    for (const name of files) assert.equal(await statusOf(name), 404, name);
    for (const name of ['pki/local/root.crt', 'www/a']) assert.equal(await statusOf(name), 200);
  });

  it('are those listed in hide: names, absolute paths, paths from the working directory, placeholders', async (test) => {
    const root = await publicRoot(test);
    const directives = `
	root * ${root}
	file_server {
		hide *.bak ${root}/secret ${relative(process.cwd(), root)}/x/a?.log {http.request.header.X-Hide}
	}
`;
    const port = await freePort();
    await start(test, join(root, 'Hubfile'), `http://127.0.0.1:${port} {${directives}}\n`);
    const caddyPort = await freePort();
    const hasCaddy = await runCaddy(
      test,
      `{\n\tadmin off\n}\nhttp://127.0.0.1:${caddyPort} {${directives}}\n`,
    );
    for (const [path, status, hide = 'nothing'] of [
      ['/a.bak', 404],
      ['/secret/y.txt', 404],
      ['/secretary', 200],
      ['/x/a1.log', 404],
      ['/x/a22.log', 200],
      ['/page.txt', 200],
      ['/page.txt', 404, 'page.txt'],
      ['/page.txt', 404, join(root, 'page.txt')],
    ] as const) {
      for (const each of hasCaddy ? [port, caddyPort] : [port]) {
        const answer = await send(`http://127.0.0.1:${each}${path}`, {
          headers: [['X-Hide', hide]],
        });
        assert.equal(answer.status, status, `${each === port ? 'hubgate' : 'Caddy'} ${path}`);
      }
    }
    const wild = await send(`http://127.0.0.1:${port}/page.txt`, { headers: [['X-Hide', '*']] });
    assert.equal(wild.status, 200);
  });

  it('are the file with the variables and private keys, but not certificates', async (test) => {
    const root = await publicRoot(test);
    createClientAuthority(root, 'ca').issue('localhost', 'serverAuth');
    await writeFile(join(root, 'hubgate.env'), 'SECRET=of-the-gateway\n');
    const [port, securePort, adminPort] = [await freePort(), await freePort(), await freePort()];
    const storage = await mkdtemp(join(tmpdir(), 'hubgate-hidden-storage-'));
    removeWith(test, storage);
    const admin = `127.0.0.1:${adminPort}`;
    const hubfile = `{
	admin ${admin}
	auto_https disable_redirects
	storage ${storage}
}
http://localhost:${port} {
	root * ${root}
	file_server
}
`;
    const file = join(root, 'Hubfile');
    const secureSite = `https://localhost:${securePort} {
	tls ${root}/localhost.crt ${root}/localhost.key
}
`;
    await writeFile(file, hubfile + secureSite);
    const envFile = join(root, 'hubgate.env');
    const args = [cli, 'run', '--no-watch', '--config', file, '--envfile', envFile];
    await startProcess(test, args).says('Listening on');
    const checkAll = async (): Promise<void> => {
      for (const [path, expected] of [
        ['/page.txt', 200],
        ['/localhost.crt', 200],
        ['/Hubfile', 404],
        ['/hubgate.env', 404],
        ['/localhost.key', 404],
      ] as const) {
        const { status } = await send(`http://localhost:${port}${path}`);
        assert.equal(status, expected, path);
      }
    };
    await checkAll();

    // A posted configuration does not make those of the gateway visible.
    for (const query of ['', `?file=${encodeURIComponent(join(root, 'Posted'))}`]) {
      const { status, body } = await send(`http://${admin}/load${query}`, {
        method: 'POST',
        headers: [['Content-Type', 'text/hubfile']],
        body: `${hubfile}# ${query}\nhttp://posted.localhost:${port} {\n\tredir /${query}\n}\n`,
      });
      assert.equal(status, 200, body);
      assert.deepEqual(JSON.parse(body).warnings, []);
      await checkAll();
    }
  });

  it('stay hidden when the link to them is replaced, as certbot and Kubernetes do', async (test) => {
    const root = await publicRoot(test);
    const port = await freePort();
    for (const version of ['1', '2']) {
      await mkdir(join(root, 'archive', version), { recursive: true });
      await writeFile(join(root, 'archive', version, 'password'), `secret ${version}`);
    }
    await symlink('archive/1/password', join(root, 'live'));
    await symlink('archive/1', join(root, 'data'));
    await symlink('data/password', join(root, 'mounted'));
    const linked = `${root}/../linked`;
    const site = `http://127.0.0.1:${port} {
	root * ${root}
	header X-Live {file.${root}/live}
	header X-Mounted {file.${linked}/mounted}
	@tried file /live /mounted
	respond @tried found
	file_server browse
}
`;
    await start(test, join(root, 'Hubfile'), site);
    const answers = async (): Promise<readonly number[]> => {
      const found = ['/live', '/mounted'].map((path) => send(`http://127.0.0.1:${port}${path}`));
      return (await Promise.all(found)).map(({ status }) => status);
    };
    assert.deepEqual(await answers(), [404, 404]);
    await symlink('archive/2/password', join(root, 'next'));
    await rename(join(root, 'next'), join(root, 'live'));
    await symlink('archive/2', join(root, 'next'));
    await rename(join(root, 'next'), join(root, 'data'));
    assert.deepEqual(await answers(), [404, 404]);
    const { body } = await send(`http://127.0.0.1:${port}/`);
    assert.match(body, /secretary/);
    assert.doesNotMatch(body, /live|mounted/);
  });

  it('are the files with the passwords and keys of databases', () => {
    const hubfile = `http://localhost {
	hub {
		anonymous
		transport postgres {
			url postgres://user@db/hub?sslkey=/run/history.key&sslcert=/run/history.crt
			password_file /run/history-password
		}
		outbox postgres://user@db/app?sslkey=/run/outbox.key {
			password_file /run/outbox-password
		}
	}
}
`;
    const { options } = parseHubfile(hubfile, { file: '/run/Hubfile', env: {} });
    assert.deepEqual(options.hiddenFiles.toSorted(), [
      '/run/Hubfile',
      '/run/history-password',
      '/run/history.key',
      '/run/outbox-password',
      '/run/outbox.key',
    ]);
  });
});

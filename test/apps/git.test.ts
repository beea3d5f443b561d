import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import { isMissed, programPath } from '../support/program.ts';
import { type RecipeGateway, runClient, startRecipeGateway } from '../support/recipe-gateway.ts';

/*
 * Git's own server by HTTP, git-http-backend, behind nginx and fcgiwrap (git, nginx, fcgiwrap), and git as the client.
 */
const BACKEND = '/usr/lib/git-core/git-http-backend';
const FILES = 20;
const MIB = 1024 * 1024;

const NGINX = (place: string, port: number): string => `
${process.getuid?.() === 0 ? 'user root;' : ''}
daemon off;
pid ${place}/nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path ${place}/body;
  fastcgi_temp_path ${place}/fastcgi;
  proxy_temp_path ${place}/proxy;
  scgi_temp_path ${place}/scgi;
  uwsgi_temp_path ${place}/uwsgi;
  server {
    listen 127.0.0.1:${port};
    client_max_body_size 0;
    location / {
      fastcgi_pass unix:${place}/fcgiwrap.sock;
      fastcgi_param SCRIPT_FILENAME ${BACKEND};
      fastcgi_param GIT_PROJECT_ROOT ${place}/served;
      fastcgi_param GIT_HTTP_EXPORT_ALL "";
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
      fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol;
    }
  }
}
`;

interface GitServer extends RecipeGateway {
  readonly place: string;
}

async function gitServer(test: TestContext): Promise<GitServer | null> {
  const nginx = programPath(test, 'nginx');
  const wrapper = nginx && programPath(test, 'fcgiwrap');
  if (nginx === null || wrapper === null) return null;
  if (!existsSync(BACKEND)) {
    isMissed(test, 'git is not installed (apt-get install git)');
    return null;
  }
  const place = applicationDirectory(test);
  await runClient('git', ['init', '-q', '--bare', join(place, 'served', 'all.git')]);
  const settings = join(place, 'served', 'all.git', 'config');
  await runClient('git', ['config', '-f', settings, 'http.receivepack', 'true']);
  const socket = join(place, 'fcgiwrap.sock');
  const workers = ['-c', '4', '-s', `unix:${socket}`];
  await serveApplication(test, wrapper, workers, { port: socket, cwd: place });
  const port = await freePort();
  const file = join(place, 'nginx.conf');
  writeFileSync(file, NGINX(place, port));
  await serveApplication(test, nginx, ['-p', place, '-e', 'stderr', '-c', file], {
    port,
    cwd: place,
  });
  return { place, ...(await startRecipeGateway(test, 'Git', port)) };
}

/** A repository of 20 MiB that nothing makes smaller, with two commits. */
async function repository(place: string, git: Git): Promise<string> {
  const path = join(place, 'mine');
  await git(place, 'init', '-q', '-b', 'main', path);
  for (let index = 0; index < FILES; index += 1) {
    writeFileSync(join(path, `${index}.bin`), randomBytes(MIB));
  }
  for (const name of ['first', 'second']) {
    writeFileSync(join(path, 'read-me.txt'), `${name}\n`);
    await git(path, 'add', '-A');
    await git(path, 'commit', '-q', '-m', name);
  }
  return path;
}

type Git = (cwd: string, ...args: readonly string[]) => Promise<string>;

describe('Git over HTTP', () => {
  for (const [version, shown] of [
    ['HTTP/1.1', 'HTTP/1.1 200'],
    ['HTTP/2', 'HTTP/2 200'],
  ] as const) {
    it(`${FILES} MiB are pushed, cloned, and cloned in part, over ${version}`, async (test) => {
      const server = await gitServer(test);
      if (server === null) return;
      const { place, origin, authority } = server;
      const settings = ['user.name=Me', 'user.email=me@example.com', `http.version=${version}`];
      const options = settings.flatMap((setting) => ['-c', setting]);
      const env = {
        ...{ GIT_CONFIG_GLOBAL: '/dev/null', GIT_TERMINAL_PROMPT: '0' },
        GIT_SSL_CAINFO: authority,
      };
      const git: Git = (cwd, ...args) => runClient('git', [...options, ...args], { cwd, env });
      const mine = await repository(place, git);
      const url = `${origin}/all.git`;
      await git(mine, 'push', '-q', url, 'main');

      const told = { ...env, GIT_TRACE_CURL: '1', GIT_TRACE_CURL_NO_DATA: '1' };
      const listed = await runClient('git', [...options, 'ls-remote', url], { env: told });
      assert.ok(listed.includes(shown), listed);

      const whole = join(place, 'whole');
      await git(place, 'clone', '-q', '-b', 'main', url, whole);
      await git(whole, 'fsck', '--full', '--strict');
      for (let index = 0; index < FILES; index += 1) {
        const [sent, found] = [mine, whole].map((one) => readFileSync(join(one, `${index}.bin`)));
        assert.ok(sent !== undefined && found?.equals(sent), `${index}.bin`);
      }
      assert.equal((await git(whole, 'rev-list', '--count', 'HEAD')).trim(), '2');

      const shallow = join(place, 'shallow');
      await git(place, 'clone', '-q', '-b', 'main', '--depth', '1', url, shallow);
      assert.equal((await git(shallow, 'rev-list', '--count', 'HEAD')).trim(), '1');
      await git(shallow, 'fetch', '-q', '--unshallow');
      assert.equal((await git(shallow, 'rev-list', '--count', 'HEAD')).trim(), '2');

      writeFileSync(join(whole, 'read-me.txt'), 'third\n');
      await git(whole, 'commit', '-q', '-a', '-m', 'third');
      await git(whole, 'push', '-q', 'origin', 'main');
      await git(mine, 'pull', '-q', url, 'main');
      assert.equal(readFileSync(join(mine, 'read-me.txt'), 'utf8'), 'third\n');
    });
  }
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

const SITE = `
	@one path /q?x
	@class path /c[Aa]t
	@prefix path /p[Aa]t/*
	@inner path /m/*/c*
	@edges path *inside*
	@name path *.php
	@escaped path /e%2Fx/*
	@double path /d//x
	@filled path /f/{query.p}
	@metrics path /metrics
	@header header X-A {query.h}
	@ends header X-B a{query.h}*
	@query query a={header.X-C}
	@host host {header.X-Host}
	respond @one one
	respond @class class
	respond @prefix prefix
	respond @inner inner
	respond @edges edges
	respond @name name
	respond @escaped escaped
	respond @double double
	respond @filled filled
	respond @metrics metrics
	respond @header header
	respond @ends ends
	respond @query query
	respond @host host
	respond none
`;

describe('matchers of paths and fields', () => {
  it('match the same requests as in Caddy, with placeholders filled in for each request', async (test) => {
    const port = await freePort();
    await startGateway(test, `http://127.0.0.1:${port} {${SITE}}\n`);
    const caddy = await startCaddy(test, SITE);
    for (const [target, expected, name, value] of [
      ['/qax', 'one'],
      ['/q%3fx', 'one'],
      ['/q/x', 'none'],
      ['/cat', 'class'],
      ['/CAT', 'class'],
      ['/cbt', 'none'],
      ['/pat/x', 'none'],
      ['/m/b/c', 'inner'],
      ['/m/b/cde', 'inner'],
      ['/m/b/cde/f', 'none'],
      ['/m/b/b/c', 'none'],
      ['/x/inside/y', 'edges'],
      ['/x/y.php', 'name'],
      ['/x/y.phps', 'none'],
      ['/e%2fx/y', 'escaped'],
      ['/e/x/y', 'none'],
      ['/d//x', 'double'],
      ['/d/x', 'none'],
      ['//metrics', 'metrics'],
      ['/metrics/.', 'metrics'],
      ['/metrics/', 'none'],
      ['/f/foo?p=foo', 'filled'],
      ['/f/foo?p=bar', 'none'],
      ['/?h=v', 'header', 'X-A', 'v'],
      ['/?h=w', 'none', 'X-A', 'v'],
      ['/?h=b', 'ends', 'X-B', 'abc'],
      ['/?a=7', 'query', 'X-C', '7'],
      ['/?a=8', 'none', 'X-C', '7'],
      ['/', 'host', 'X-Host', '127.0.0.1'],
      ['/', 'none', 'X-Host', 'other.example'],
    ] as const) {
      const headers = name === undefined ? [] : ([[name, value]] as const);
      const ask = async (origin: string) => (await send(`${origin}/`, { target, headers })).body;
      assert.equal(await ask(`http://127.0.0.1:${port}`), expected, target);
      // Debian's Caddy is too old to clean it.
      if (target === '/metrics/.') continue;
      if (caddy !== null) assert.equal(await ask(caddy), expected, `Caddy: ${target}`);
    }
    // Other than in Caddy a client brings no wildcard in.
    for (const target of ['/f/foo?p=*', '/f/foo?p=f??', '/?h=*']) {
      const { body } = await send(`http://127.0.0.1:${port}/`, { target, headers: [['X-A', 'v']] });
      assert.equal(body, 'none', target);
    }
  });

  it('are load errors with unknown placeholders or invalid patterns', async (test) => {
    for (const [line, expected] of [
      ['@a vars {http.request.tls.client.subject} x', /verifies no client certificates/],
      ['@a header X-A {hots}', /is not a placeholder/],
      ['@a not path /{unknown.thing}/*', /is not a placeholder/],
      ['@a path /[a', /whose \[classes\] are closed/],
    ] as const) {
      const site = `http://127.0.0.1:0 {\n\t${line}\n\trespond @a no 403\n}\n`;
      await assert.rejects(startGateway(test, site), expected, line);
    }
    const port = await freePort();
    const site = `http://127.0.0.1:${port} {
	map {path} {kind} {
		/x secret
		default open
	}
	@secret vars {kind} secret
	respond @secret no 403
	respond yes
}\n`;
    await startGateway(test, site);
    assert.equal((await send(`http://127.0.0.1:${port}/x`)).status, 403);
    assert.equal((await send(`http://127.0.0.1:${port}/y`)).status, 200);
  });
});

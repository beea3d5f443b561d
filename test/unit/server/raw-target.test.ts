import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';

/** Lets what was written arrive by itself. */
const PAUSE = '';

/** A character for each byte that goes over the wire. */
const raw = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

describe('bytes beyond ASCII in a request target', () => {
  it('of a query over HTTP/2 become what they should have been: percent-encoded UTF-8', async (test) => {
    const { http2 } = await start(test);
    const answer = await http2(raw('/a?topic=Bücher/日本&x=%C3%BC'));
    assert.equal(answer.status, 200);
    assert.equal(answer.body, 'topic=B%C3%BCcher/%E6%97%A5%E6%9C%AC&x=%C3%BC');
  });

  it('of a query over HTTP/2 are refused with the reason if they are not UTF-8', async (test) => {
    const { http2 } = await start(test);
    const answer = await http2('/a?topic=B\xfccher');
    assert.equal(answer.status, 400);
    assert.equal(answer.body, 'The target of the request is not UTF-8\n');
  });

  for (const scheme of ['http', 'https'] as const) {
    it(`of a query over HTTP/1.1 (${scheme}) become what they should have been`, async (test) => {
      const { http1 } = await start(test);
      const [answer] = await http1(scheme, [request(raw('/a?topic=Bücher/日本&x=%C3%BC'))]);
      assert.equal(answer?.status, 200);
      assert.equal(answer.body, 'topic=B%C3%BCcher/%E6%97%A5%E6%9C%AC&x=%C3%BC');
    });

    it(`of each query on one connection (${scheme}) are fixed, even with bodies that arrive in pieces`, async (test) => {
      const { http1 } = await start(test);
      const post = `POST ${raw('/b?é')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nabc`;
      const answers = await http1(scheme, [
        request(raw('/a?ü')),
        request('/plain?x'),
        [post, 'def'],
        [post, PAUSE, 'def'],
        // The gateway answers before the body, whose end then arrives with the next request.
        [post],
        [`def${request(raw('/c?ß'))}`],
        [PAUSE, request(raw('/d?ø'))],
      ]);
      assert.deepEqual(
        answers.map(({ status, body }) => `${status} ${body}`),
        [
          '200 %C3%BC',
          '200 x',
          '200 %C3%A9',
          '200 %C3%A9',
          '200 %C3%A9',
          '200 %C3%9F',
          '200 %C3%B8',
        ],
      );
    });
  }

  it('of a query are fixed in their TLS record, and the records that arrived with it are kept', async (test) => {
    const { http1 } = await start(test);
    const body = 'x'.repeat(60_000);
    const answers = await http1('https', [
      `POST ${raw('/a?ü')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      [PAUSE, request(raw('/b?ß'))],
    ]);
    assert.deepEqual(
      answers.map(({ status, body }) => `${status} ${body}`),
      ['200 %C3%BC', '200 %C3%9F'],
    );
  });

  it('of a query over HTTP/1.1 are refused with the reason if they are not UTF-8', async (test) => {
    const { http1 } = await start(test);
    const [answer] = await http1('http', [request('/a?topic=B\xfccher')]);
    assert.equal(answer?.status, 400);
    assert.equal(answer.body, 'The target of the request is not UTF-8\n');
  });

  it('cause a refusal, once, if they are missing and the target cannot be restored', async (test) => {
    const { http1 } = await start(test);
    for (const target of ['a', 'a?b', raw('a?ü')]) {
      const answers = await http1('http', [request(target)]);
      assert.deepEqual(answers, [{ status: 400, body: '' }], target);
    }
  });

  it('of a request line that arrives in pieces become what they should have been', async (test) => {
    const { http1 } = await start(test);
    const [first = '', second = ''] = raw('ü');
    const answers = await http1('http', [
      [`GET /a?x=${first}`, PAUSE, `${second} HTTP/1.1\r\nHost: localhost\r\n\r\n`],
    ]);
    assert.deepEqual(answers, [{ status: 200, body: 'x=%C3%BC' }]);
  });

  it('after a request that is still being handled are fixed, and answered in turn', async (test) => {
    const { http1 } = await start(test);
    const answers = await http1('http', [request('/slow?x') + request(raw('/b?ü')), []]);
    assert.deepEqual(
      answers.map(({ status, body }) => `${status} ${body}`),
      ['200 ', '200 %C3%BC'],
    );
  });

  it('change nothing but the target: a request refused for another reason stays refused', async (test) => {
    const { http1 } = await start(test);
    for (const rest of [
      'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'Host: other\r\n\r\n',
      'Header : a\r\n\r\n',
    ]) {
      const [answer] = await http1('http', [
        [`GET ${raw('/a?ü')} HTTP/1.1\r\nHost: localhost\r\n${rest}`],
      ]);
      assert.equal(answer?.status, 400, rest);
    }
  });

  it('of a path reach the app as percent-encoded UTF-8, as browsers send them', async (test) => {
    const { http1, http2 } = await start(test);
    const target = raw('/app/Bücher/日本?x=ü');
    const encoded = '/app/B%C3%BCcher/%E6%97%A5%E6%9C%AC?x=%C3%BC';
    for (const scheme of ['http', 'https'] as const) {
      assert.deepEqual(await http1(scheme, [request(target)]), [{ status: 200, body: encoded }]);
    }
    assert.deepEqual(await http2(target), { status: 200, body: encoded });
  });

  it('of a path meet the same matchers as their percent-encoded form', async (test) => {
    const { http1 } = await start(test);
    const paths = [raw('/geheim/ü'), '/geheim/%C3%BC', '/geheim/%c3%bc', raw('/x/../geheim/ü')];
    const answers = await http1('http', paths.map(request));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [403, 403, 403, 403],
    );
  });

  it('of a path are refused with the reason if they are not UTF-8', async (test) => {
    const { http1, http2 } = await start(test);
    const refusal = { status: 400, body: 'The target of the request is not UTF-8\n' };
    // A letter of Latin-1, a slash in two bytes, half a surrogate pair.
    for (const path of ['/B\xfccher?x', '/a\xc0\xafb', '/\xed\xa0\x80']) {
      assert.deepEqual(await http1('http', [request(path)]), [refusal]);
      assert.deepEqual(await http2(path), refusal);
    }
  });
});

function request(target: string): string {
  return `GET ${target} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
}

/** The whole answers of a connection. */
function answersIn(text: string): Answer[] {
  const answers: Answer[] = [];
  for (let rest = text; ; ) {
    const [, status = '', length = ''] =
      /^HTTP\/1\.1 (\d+)[^]*?content-length: (\d+)/i.exec(rest) ?? [];
    const start = rest.indexOf('\r\n\r\n') + 4;
    const end = start + Number(length);
    if (status === '' || start < 4 || rest.length < end) return answers;
    answers.push({ status: Number(status), body: rest.slice(start, end) });
    rest = rest.slice(end);
  }
}

interface Answer {
  readonly status: number;
  readonly body: string;
}

async function start(test: TestContext) {
  const [plain, secure, app] = [await freePort(), await freePort(), await freePort()];
  const upstream = createServer(({ url = '' }, response) => {
    const body = url.startsWith('/app/') ? url : '';
    const headers = { 'content-length': String(body.length) };
    setTimeout(() => response.writeHead(200, headers).end(body), 50);
  }).listen(app, '127.0.0.1');
  test.after(() => upstream.close());
  await once(upstream, 'listening');
  const { root } = await startGateway(
    test,
    `http://localhost:${plain} {
	@app path /slow /app/*
	handle @app {
		reverse_proxy 127.0.0.1:${app}
	}
	handle /geheim/ü {
		respond 403
	}
	respond {query}
}
https://localhost:${secure} {
	tls internal
	handle /app/* {
		reverse_proxy 127.0.0.1:${app}
	}
	respond {query}
}
`,
  );
  const ca = await root();
  return {
    /** Sends requests one after another on one connection, each when the one before is answered. */
    async http1(
      scheme: 'http' | 'https',
      requests: readonly (string | string[])[],
    ): Promise<Answer[]> {
      const socket =
        scheme === 'http'
          ? connect(plain, 'localhost')
          : connectTls({ port: secure, host: 'localhost', servername: 'localhost', ca });
      test.after(() => socket.destroy());
      socket.setEncoding('latin1').setNoDelay();
      let text = '';
      socket.on('data', (chunk: string) => (text += chunk));
      for (const [index, one] of requests.entries()) {
        for (const piece of [one].flat()) {
          if (piece === PAUSE) await new Promise((resolve) => setTimeout(resolve, 20));
          else socket.write(piece, 'latin1');
        }
        while (!socket.closed && answersIn(text).length <= index) await once(socket, 'data');
      }
      socket.end();
      if (!socket.closed) await once(socket, 'close');
      return answersIn(text);
    },
    async http2(target: string): Promise<Answer> {
      const session = connectHttp2(`https://localhost:${secure}`, { ca });
      test.after(() => session.destroy());
      const stream = session.request({ ':path': target }).setEncoding('utf8');
      const [headers] = await once(stream, 'response');
      let body = '';
      for await (const chunk of stream) body += String(chunk);
      return { status: Number(headers[':status']), body };
    },
  };
}

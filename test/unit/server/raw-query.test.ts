import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';

/** A character for each byte that goes over the wire. */
const raw = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

describe('bytes beyond ASCII in a request target', () => {
  it('of a query over HTTP/2 are what they should have been: percent-encoded UTF-8', async (test) => {
    const { http2 } = await start(test);
    const answer = await http2(raw('/a?topic=Bücher/日本&x=%C3%BC'));
    assert.equal(answer.status, 200);
    assert.equal(answer.body, 'topic=B%C3%BCcher/%E6%97%A5%E6%9C%AC&x=%C3%BC');
  });

  it('of a query over HTTP/2 that are not UTF-8 are refused with the reason', async (test) => {
    const { http2 } = await start(test);
    const answer = await http2('/a?topic=B\xfccher');
    assert.equal(answer.status, 400);
    assert.equal(answer.body, 'The query of the request is not UTF-8\n');
  });

  it('over HTTP/1.1 are refused with the cure: Node’s strict parser takes none', async (test) => {
    const { http1 } = await start(test);
    const answer = await http1(raw('/a?topic=Bücher'));
    assert.equal(answer.status, 400);
    assert.match(answer.body, /percent-encoded \(as UTF-8\)/);
  });

  it('of a path are refused: two readers could take them for different paths', async (test) => {
    const { http1, http2 } = await start(test);
    for (const ask of [http1, http2]) assert.equal((await ask(raw('/Bücher'))).status, 400);
  });
});

interface Answer {
  readonly status: number;
  readonly body: string;
}

async function start(test: TestContext) {
  const [plain, secure] = [await freePort(), await freePort()];
  const { root } = await startGateway(
    test,
    `http://localhost:${plain} {
	respond {query}
}
https://localhost:${secure} {
	tls internal
	respond {query}
}
`,
  );
  const ca = await root();
  return {
    async http1(target: string): Promise<Answer> {
      const socket = connect(plain, 'localhost').setEncoding('latin1');
      test.after(() => socket.destroy());
      socket.write(
        `GET ${target} HTTP/1.1\r\nHost: localhost:${plain}\r\nConnection: close\r\n\r\n`,
        'latin1',
      );
      let text = '';
      for await (const chunk of socket) text += String(chunk);
      const [head = '', body = ''] = text.split('\r\n\r\n', 2);
      return { status: Number(head.split(' ')[1]), body };
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

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { FORM, startHub } from '../support/hub-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const PATH = '/.well-known/hub';

describe('limits on what a client may send', () => {
  it('a form has at most 1,100 pairs, empty ones included', async (test) => {
    const hub = await startHub(test);
    const most = `topic=a&${'x&'.repeat(1098)}x`;
    assert.equal((await hub.post(most)).status, 200);
    for (const pair of ['&x', '&']) {
      const answer = await hub.post(most + pair);
      assert.equal(answer.status, 413);
      assert.equal(answer.body, 'too many fields in update (max 1100)\n');
    }
    const lines = hub.log.filter(({ message }) => message === 'The hub refused a request');
    assert.deepEqual(
      lines.map(({ level, fields }) => [level, fields['check'], fields['found']]),
      Array.from({ length: 2 }, () => [
        'debug',
        'status_413',
        'too many fields in update (max 1100)',
      ]),
    );
    const topics = Array.from({ length: 1000 }, (_, i) => `topic=t${i}`).join('&');
    assert.equal((await hub.post(`${topics}&data=x&id=1&type=t&retry=1`)).status, 200);
  });

  it('a subscription has at most 1,100 parameters, in its URL and in its content', async (test) => {
    const hub = await startHub(test);
    const body = 'match=a&'.concat('&a'.repeat(500_000));
    const content = await hub.get(PATH, { method: 'QUERY', body, headers: [FORM] });
    assert.equal(content.status, 400);
    assert.equal(content.body, 'too many parameters (max 1100)\n');
    const url = await hub.get(`${PATH}?match=a${'&a'.repeat(1100)}`);
    assert.equal(url.status, 400);
  });

  it('the token of a QUERY is checked before its content is read', async (test) => {
    const hub = await startHub(test, { anonymous: false });
    const { hostname, port, host } = new URL(hub.url);
    const socket = connect(Number(port), hostname);
    test.after(() => socket.destroy());
    // The content never comes.
    socket.write(
      `QUERY ${PATH} HTTP/1.1\r\nHost: ${host}\r\n${FORM.join(': ')}\r\nContent-Length: 1000\r\n\r\n`,
    );
    const [answer] = await once(socket, 'data');
    assert.match(String(answer), /^HTTP\/1\.1 401 /);
  });

  it('the URL Patterns of one subscription may total at most max_pattern_size', async (test) => {
    const hub = await startHub(test, { maxPatternSize: 300 });
    const query = (patterns: number): string =>
      `${PATH}?${Array.from({ length: patterns }, (_, i) => `match_urlpattern=/${i}/(a{90})`).join('&')}`;
    assert.equal((await hub.get(query(3), { method: 'HEAD' })).status, 200);
    const refused = await hub.get(query(4));
    assert.equal(refused.status, 400);
    assert.match(refused.body, /too large together \(max_pattern_size 300\)/);
    assert.equal((await hub.get(`${PATH}?match_urlpattern=/*`, { method: 'HEAD' })).status, 200);
  });

  it('a Last-Event-ID longer than any id is treated as unknown', async (test) => {
    const hub = await startHub(test, { history: await temporaryDirectory(test) });
    assert.equal((await hub.post({ topic: 'a', id: 'x'.repeat(1024) })).status, 200);
    for (const [length, cursor] of [
      [1024, 'x'.repeat(1024)],
      [1025, 'earliest'],
      [4500, 'earliest'],
    ] as const) {
      const headers = [['Last-Event-ID', 'x'.repeat(length)]] as const;
      const answer = await hub.get(`${PATH}?match=a`, { method: 'HEAD', headers });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['hub-last-event-id'], cursor);
    }
    assert.deepEqual(
      hub.log.filter(({ level }) => level === 'error'),
      [],
    );
  });
});

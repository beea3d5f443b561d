import assert from 'node:assert/strict';
import { request } from 'node:http';
import { once } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { MAX_MATCHED_LENGTH } from '../../src/http/linear-regexp.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

/** What a site makes of a request with this field and query. */
async function statusOf(
  test: TestContext,
  lines: string,
  field: string,
  query = '',
): Promise<number | undefined> {
  const port = await freePort();
  await startGateway(test, `http://localhost:${port} {\n${lines}\n\trespond last 203\n}\n`);
  const asked = request({
    port,
    path: `/${query}`,
    headers: { host: 'localhost', 'x-a': field },
    maxHeaderSize: 1 << 20,
  });
  asked.end();
  const [response] = await once(asked, 'response');
  response.resume();
  return response.statusCode;
}

const most = 'a'.repeat(MAX_MATCHED_LENGTH);

describe('a text from a client that is matched by a regular expression of the Hubfile', () => {
  for (const [name, lines, statuses] of [
    ['header_regexp', '\t@a header_regexp X-A ^a+$\n\trespond @a found 202', [202, 431]],
    ['not header_regexp', '\t@a not header_regexp X-A b\n\trespond @a found 202', [202, 431]],
    ['vars_regexp', '\t@a vars_regexp {header.X-A} ^a+$\n\trespond @a found 202', [202, 431]],
    ['map', '\tmap {header.X-A} {b} {\n\t\t~^a+$ 1\n\t}\n\trespond "{b}" 202', [202, 431]],
    ['request_header', '\trequest_header X-A a b', [203, 431]],
    ['request_header of another field', '\trequest_header X-B a b', [203, 203]],
    [
      'an error route as well',
      '\t@a header_regexp X-A ^a+$\n\trespond @a found 202\n\thandle_errors {\n\t\t@b header_regexp X-A ^b+$\n\t\trespond @b error 299\n\t}',
      [202, 431],
    ],
  ] as const) {
    it(`${name}: is matched up to 16 KiB, and rejected with 431 beyond`, async (test) => {
      assert.equal(await statusOf(test, lines, most), statuses[0]);
      assert.equal(await statusOf(test, lines, `${most}a`), statuses[1]);
    });
  }

  it('header and header_down change response headers of any length', async (test) => {
    const lines = '\theader X-C {header.X-A}\n\theader >X-C a b';
    assert.equal(await statusOf(test, lines, `${most}a`), 203);
  });

  it('uri query changes up to 1,100 parameters of 16 KiB each', async (test) => {
    const lines = '\turi query {\n\t\ta x y\n\t}';
    const pairs = (count: number): string => `?${Array<string>(count).fill('a=x').join('&')}`;
    assert.equal(await statusOf(test, lines, '', pairs(1100)), 203);
    assert.equal(await statusOf(test, lines, '', pairs(1101)), 414);
    assert.equal(await statusOf(test, lines, '', `?a=${most}`), 203);
    assert.equal(await statusOf(test, lines, '', `?a=${most}a`), 431);
  });
});

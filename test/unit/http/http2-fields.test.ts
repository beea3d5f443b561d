import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';
import { http2FieldList, http2Fields, takesFieldLists } from '../../../src/http/http2-fields.ts';

describe('the fields of an HTTP/2 response', () => {
  const headers = HeaderList.fromRaw([
    ...['Content-Type', 'text/plain', 'Vary', 'Accept', 'Connection', 'close'],
    ...['Set-Cookie', 'a=1', 'Vary', 'Origin', 'Set-Cookie', 'b=2', 'Cookie', 'c=3'],
    ...['Cookie', 'd=4', ':path', '/', 'TE', 'gzip'],
  ]);

  it('are the same as a list and as a record', () => {
    const record = http2Fields(headers);
    assert.deepEqual(
      { ...record },
      {
        'content-type': 'text/plain',
        vary: 'Accept, Origin',
        'set-cookie': ['a=1', 'b=2'],
        cookie: 'c=3; d=4',
      },
    );
    assert.deepEqual(http2FieldList(200, headers), [
      ...[':status', '200', 'content-type', 'text/plain', 'vary', 'Accept, Origin'],
      ...['set-cookie', 'a=1', 'set-cookie', 'b=2', 'cookie', 'c=3; d=4'],
    ]);
  });

  it('are a list where Node takes one', () => {
    const taking = ['22.23.3', '24.7.0', '24.21.0', '25.0.0', '26.10.0'];
    for (const version of taking) assert.equal(takesFieldLists(version), true, version);
    const others = ['20.19.0', '20.20.2', '22.10.0', '23.11.0', '24.6.0'];
    for (const version of others) assert.equal(takesFieldLists(version), false, version);
  });
});

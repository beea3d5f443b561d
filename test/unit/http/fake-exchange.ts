import { Readable, Writable } from 'node:stream';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Identity } from '../../../src/http/identity.ts';
import { silentLogger } from '../../../src/kernel/log.ts';

/** An exchange without a connection, for what only reads the request. */
export function fakeExchange(fields: Partial<Exchange>): Exchange {
  const target = fields.target ?? fields.originalTarget ?? '/';
  return {
    id: 'r1',
    log: silentLogger,
    scheme: 'http',
    httpVersion: '1.1',
    method: 'GET',
    originalMethod: fields.method ?? 'GET',
    host: 'localhost',
    originalHost: fields.host ?? 'localhost',
    preset: new HeaderList(),
    originalTarget: target,
    rawTarget: null,
    target,
    headers: new HeaderList(),
    remoteAddress: '127.0.0.1',
    remotePort: 1,
    clientAddress: fields.remoteAddress ?? '127.0.0.1',
    body: Readable.from([]),
    hasBody: false,
    isBodyWhole: false,
    isBodyLent: false,
    trailers: () => new HeaderList(),
    lendBody: () => null,
    discardBody: () => {},
    abandoned: false,
    onAbandoned: () => () => {},
    signal: new AbortController().signal,
    identity: new Identity(),
    variables: new Map(),
    upgrade: null,
    takeOver: () => {},
    responseBytes: 0,
    tlsVersion: null,
    upstream: null,
    trace: null,
    begun: false,
    status: 0,
    interceptHead: () => () => {},
    onHead: () => {},
    withhold: () => {},
    onTrailers: () => {},
    inform: () => {},
    begin: () => new Writable({ write: (_chunk, _encoding, done) => done() }),
    stream: () => {
      throw new TypeError('a fake exchange has no stream');
    },
    end: (body) => body.end(),
    abort: () => {},
    ...fields,
  };
}

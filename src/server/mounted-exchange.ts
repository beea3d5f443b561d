import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Exchange } from '../http/exchange.ts';
import type { Logger } from '../kernel/log.ts';
import { Http1Exchange } from './http1-exchange.ts';
import { Http2Exchange } from './http2-exchange.ts';

/**
 * The exchange of a request that somebody else's server has read, through Node's HTTP/2
 * compatibility layer as well. Its connection stays with that server.
 */
export function mountedExchange(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  log: Logger,
): Exchange {
  const { socket } = request;
  const connection = {
    secure: 'encrypted' in socket && socket.encrypted,
    tlsVersion: 'getProtocol' in socket ? socket.getProtocol() : null,
    peer: { address: socket.remoteAddress ?? '', port: socket.remotePort ?? 0 },
    upgrade: null,
  };
  const settings = { log, clientAddress: null, silence: null };
  if (isHttp2(request)) {
    const { stream, rawHeaders } = request;
    return new Http2Exchange({ stream, rawHeaders, body: request }, settings, connection);
  }
  // The two always come together, which their types do not say.
  return new Http1Exchange(request, response as ServerResponse, settings, connection, null);
}

function isHttp2(request: IncomingMessage | Http2ServerRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

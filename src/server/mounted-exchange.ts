import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Exchange } from '../http/exchange.ts';
import type { Logger } from '../kernel/log.ts';

import { Http2Adapter } from './http2-adapter.ts';
import { MountedHttp1Adapter } from './mounted-http1-adapter.ts';
import { ServerExchange, type ProtocolAdapter } from './server-exchange.ts';
import { requestTarget } from './strict-request.ts';

/**
 * Creates the exchange of a request that a foreign server has read, also through Node's HTTP/2 compatibility
 * layer. The connection stays with that server.
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
  const keeps = { forwardRawPath: false, underscoresInHeaders: false };
  const settings = { log, clientAddress: null, keeps, silence: null };
  return new ServerExchange(wireOf(request, response), settings, connection);
}

function wireOf(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
): ProtocolAdapter {
  const { url = '/' } = request;
  // A target that two readers could read differently never belongs to the hub.
  const target = requestTarget(url) ?? { authority: null, target: url, spelled: url };
  if (isHttp2(request)) {
    const { stream, rawHeaders } = request;
    return new Http2Adapter({ stream, rawHeaders, body: request, target });
  }
  // Request and response always come as a pair, which their types do not express.
  return new MountedHttp1Adapter(request, response as ServerResponse, target);
}

function isHttp2(request: IncomingMessage | Http2ServerRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

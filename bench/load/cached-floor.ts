// What a gateway could reach at best for stored responses: Node alone, with the bytes of a hit. Takes `port app-port
// [certificate key]`.
import type { RequestListener } from 'node:http';
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { serve } from './bare-server.ts';

const [port, _appPort, certificate, key] = process.argv.slice(2);
const small = Buffer.alloc(1024, 'x');
const page = Buffer.alloc(20 * 1024, 'z');
const fields = {
  'Content-Type': 'text/plain',
  Link: '</.well-known/hub>; rel="hub", </>; rel="self"; hub-cursor="01234567-89ab-cdef-0123-456789abcdef"',
  Via: '1.1 hubgate',
  Age: '1',
  'Cache-Status': 'hubgate; hit; ttl=86399',
};

const onRequest: RequestListener = (request, response) => {
  const body = request.url === '/page' ? page : small;
  response.writeHead(200, { ...fields, 'Content-Length': body.length });
  response.end(body);
};

function onStream(stream: ServerHttp2Stream, { ':path': path }: IncomingHttpHeaders): void {
  const body = path === '/page' ? page : small;
  stream.respond({ ':status': 200, ...fields, 'Content-Length': body.length });
  stream.end(body);
}

serve({ port, certificate, key, onRequest, onStream });

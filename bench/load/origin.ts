// The app behind the gateways: as little work per request as Node can do.
import { createServer } from 'node:http';

const [port = '0'] = process.argv.slice(2);
const small = Buffer.alloc(1024, 'x');
const page = Buffer.alloc(20 * 1024, 'z');
const piece = Buffer.alloc(64 * 1024, 'y');
const LARGE_PIECES = 3200;

const server = createServer((request, response) => {
  if (request.url === '/upload') {
    request.resume().once('end', () => response.end('taken'));
    return;
  }
  if (request.url !== '/large') {
    const body = request.url === '/page' ? page : small;
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': body.length });
    response.end(body);
    return;
  }
  response.writeHead(200, { 'Content-Length': piece.length * LARGE_PIECES });
  let left = LARGE_PIECES;
  const more = (): void => {
    while (left > 0) {
      left -= 1;
      if (!response.write(piece)) {
        response.once('drain', more);
        return;
      }
    }
    response.end();
  };
  more();
});
server.keepAliveTimeout = 60_000;
server.listen(Number(port), '127.0.0.1');
process.on('SIGTERM', () => process.exit());

// Names the user of the session cookie: 204 with X-User-Id, or without it for a guest.
import { createServer } from 'node:http';

const sessions = new Map([
  ['s-alice', 'alice'],
  ['s-bob', 'bob'],
]);

createServer((request, response) => {
  const session = /(?:^|;\s*)session=([^;]+)/.exec(request.headers.cookie ?? '')?.[1];
  const user = sessions.get(session);
  response.writeHead(204, user === undefined ? {} : { 'X-User-Id': user }).end();
}).listen(Number(process.env.AUTH_PORT ?? 4000), 'localhost', () => {
  console.error('auth: listening');
});

// The hub alone, in a plain node:http server. Runs in a package with `"type": "module"`.
import { createServer } from 'node:http';
import { createHub } from 'hubgate/hub';

const key = process.env['HUB_JWT_KEY'] ?? 'a secret of at least 32 bytes, for tokens';
const hub = await createHub({
  issuers: [{ id: 'https://example.com', publisher: { key }, subscriber: { key } }],
  anonymous: true,
});

const server = createServer((request, response) => {
  hub.handle(request, response, () => {
    response.setHeader(
      'Link',
      `</.well-known/hub>; rel="hub"; last-event-id="${hub.lastUpdateId}"`,
    );
    response.end('the app\n');
  });
});
server.listen(Number(process.env['PORT'] ?? 3001), '127.0.0.1', () => {
  console.log(`listening on ${JSON.stringify(server.address())}`);
});
// What happens in the app needs no token: it is published from within.
const timer = setInterval(() => {
  void hub.publish({ topics: ['https://example.com/clock'], data: new Date().toISOString() });
}, 1000);
process.once('SIGTERM', () => {
  clearInterval(timer);
  server.close();
  void hub.close();
});

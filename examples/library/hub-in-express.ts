// The hub alone, in Express. Runs in a package with `"type": "module"`, which also has `express`.
import express from 'express';
import { createHub } from 'hubgate/hub';

const key = process.env['HUB_JWT_KEY'] ?? 'a secret of at least 32 bytes, for tokens';
const hub = await createHub({
  issuers: [{ id: 'https://example.com', publisher: { key }, subscriber: { key } }],
  anonymous: true,
});

const app = express();
app.use((request, response, next) => hub.handle(request, response, next));
app.get('/', (_request, response) => {
  response.send('the app\n');
});
const server = app.listen(Number(process.env['PORT'] ?? 3002), '127.0.0.1', (error) => {
  if (error !== undefined) throw error;
  console.log(`listening on ${JSON.stringify(server.address())}`);
});
process.once('SIGTERM', () => {
  server.close();
  void hub.close();
});

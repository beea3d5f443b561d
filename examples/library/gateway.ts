// A gateway in a program of your own. Runs in a package with `"type": "module"`.
import { createGateway, parseHubfile } from 'hubgate';

const [, , hubfile = 'localhost {\n\trespond "hello"\n}\n'] = process.argv;
const gateway = createGateway(parseHubfile(hubfile));
await gateway.start();
for (const { port, secure } of gateway.listeners) {
  console.log(`${secure ? 'https' : 'http'} on port ${port}`);
}
process.once('SIGTERM', () => void gateway.stop());

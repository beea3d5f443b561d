import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A local identity provider whose answer can be changed. */
export interface JwksServer {
  readonly uri: string;
  /** How often it was asked. */
  readonly requests: () => number;
  answer: (response: ServerResponse) => void;
  close(): Promise<void>;
}

export async function startJwksServer(keys: readonly unknown[]): Promise<JwksServer> {
  let requests = 0;
  const server = createServer((_, response) => {
    requests += 1;
    handle.answer(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  // A TCP server that listens has an address object.
  const { port } = server.address() as AddressInfo;
  const handle: JwksServer = {
    uri: `http://127.0.0.1:${port}/jwks.json`,
    requests: () => requests,
    answer: answerKeys(keys),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return handle;
}

export function answerKeys(keys: readonly unknown[]): JwksServer['answer'] {
  return (response) => {
    response.setHeader('content-type', 'application/jwk-set+json');
    response.end(JSON.stringify({ keys }));
  };
}

import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { DEBUGGER_CSS, DEBUGGER_HTML, DEBUGGER_JS } from './debugger-page.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { createPlaygroundToken } from './playground.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

const FILES: Readonly<Record<string, readonly [type: string, content: string]>> = {
  '': ['text/html; charset=utf-8', DEBUGGER_HTML],
  'debugger.css': ['text/css; charset=utf-8', DEBUGGER_CSS],
  'debugger.js': ['text/javascript; charset=utf-8', DEBUGGER_JS],
};

/** `HUB/debug/…`: a page to subscribe and publish with. It holds no secret and needs no token itself. */
export function createDebugger(
  endpoint: HubEndpoint,
): (exchange: Exchange, identity: Identity, path: string) => Promise<void> {
  const { anonymous, cookieName, stream, playground } = endpoint;
  const prefix = `${endpoint.path}/debug/`;
  const config = JSON.stringify({
    playground: playground !== null,
    anonymous,
    subscriptions: stream.announced,
    cookieName,
  });
  const answerToken = createPlaygroundToken(endpoint);

  return async (exchange, identity, path) => {
    const { method } = exchange;
    if (method !== 'GET' && method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
    const name = path.slice(prefix.length);
    if (name === 'config.json') {
      const fields = { 'content-type': 'application/json', 'cache-control': 'no-store' };
      answer(exchange, 200, fields, config);
      return;
    }
    if (name === 'playground-token') return answerToken(exchange, identity);
    const file = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
    if (file === undefined) throw notFound();
    const [type, content] = file;
    answer(exchange, 200, { 'content-type': type, 'cache-control': 'no-cache' }, content);
  };
}

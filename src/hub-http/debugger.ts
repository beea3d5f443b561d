import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { DEBUGGER_CSS, DEBUGGER_HTML, DEBUGGER_JS } from './debugger-page.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { answerPlaygroundToken } from './playground.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

const FILES: Readonly<Record<string, readonly [type: string, content: string]>> = {
  '': ['text/html; charset=utf-8', DEBUGGER_HTML],
  'debugger.css': ['text/css; charset=utf-8', DEBUGGER_CSS],
  'debugger.js': ['text/javascript; charset=utf-8', DEBUGGER_JS],
};

/** `HUB/debug/…`: a page to subscribe and publish with. It holds no secret and needs no token itself. */
export async function answerDebugger(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
  path: string,
): Promise<void> {
  if (!endpoint.debugger) throw notFound();
  if (exchange.method !== 'GET' && exchange.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  const name = path.slice(`${endpoint.path}/debug/`.length);
  if (name === 'config.json') {
    const { anonymous, subscriptions, cookieName } = endpoint;
    const config = {
      playground: endpoint.playground !== null,
      anonymous,
      subscriptions,
      cookieName,
    };
    const fields = { 'content-type': 'application/json', 'cache-control': 'no-store' };
    answer(exchange, 200, fields, JSON.stringify(config));
    return;
  }
  if (name === 'playground-token') return answerPlaygroundToken(exchange, endpoint, identity);
  const file = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
  if (file === undefined) throw notFound();
  const [type, content] = file;
  answer(exchange, 200, { 'content-type': type, 'cache-control': 'no-cache' }, content);
}

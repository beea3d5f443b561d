import { readsLegacyTokens } from '../auth/verify.ts';
import type { DebuggerSettings } from '../debugger/settings.ts';
import { answer } from '../http/answer.ts';
import { DESIGN_CSS } from '../http/design.ts';
import type { Exchange } from '../http/exchange.ts';
import { createScriptAnswer } from './browser-script.ts';
import { DEBUGGER_CSS, DEBUGGER_HTML } from './debugger-page.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { createPlaygroundToken } from './playground.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

const FILES: Readonly<Record<string, readonly [type: string, content: string]>> = {
  '': ['text/html; charset=utf-8', DEBUGGER_HTML],
  'design.css': ['text/css; charset=utf-8', DESIGN_CSS],
  'debugger.css': ['text/css; charset=utf-8', DEBUGGER_CSS],
};

/** `HUB/debug/…`: a page to subscribe and publish with. It holds no secret and needs no token itself. */
export function createDebugger(
  endpoint: HubEndpoint,
): (exchange: Exchange, identity: Identity, path: string) => Promise<void> {
  const { anonymous, cookieName, stream, playground, profile, legacyTopics } = endpoint;
  const { acceptsLegacy } = endpoint.verifier;
  const prefix = `${endpoint.path}/debug/`;
  const settings: Omit<DebuggerSettings, 'audience'> = {
    playground: playground !== null,
    anonymous,
    subscriptions: stream.announced,
    cookieName,
    cursorHeader: profile.cursorHeader,
    detailType: endpoint.detailType,
    base: endpoint.base,
    legacyClaim: profile.legacyClaim,
    compatible: acceptsLegacy || legacyTopics !== null,
    readsLegacy: readsLegacyTokens,
  };
  const answerToken = createPlaygroundToken(endpoint);
  const answerScript = createScriptAnswer(endpoint.debuggerScript);

  return async (exchange, identity, path) => {
    const { method } = exchange;
    if (method !== 'GET' && method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
    const name = path.slice(prefix.length);
    if (name === 'config.json') {
      const fields = { 'content-type': 'application/json', 'cache-control': 'no-store' };
      const config: DebuggerSettings = { ...settings, audience: identity.resource };
      answer(exchange, 200, fields, JSON.stringify(config));
      return;
    }
    if (name === 'debugger.js') return answerScript(exchange);
    if (name === 'playground-token') return answerToken(exchange, identity);
    const file = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
    if (file === undefined) throw notFound();
    const [type, content] = file;
    answer(exchange, 200, { 'content-type': type, 'cache-control': 'no-cache' }, content);
  };
}

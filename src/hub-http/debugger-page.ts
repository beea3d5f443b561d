import { readsLegacyTokens } from '../auth/verify.ts';
import type { DebuggerSettings } from '../debugger/token.ts';
import { answer } from '../http/answer.ts';
import { DESIGN_CSS, MARK_SVG } from '../http/page.ts';
import type { Exchange } from '../http/exchange.ts';
import { createScriptAnswer, type HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { createPlaygroundToken } from './playground.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/**
 * The page of the debugger. All scripts and styles come from the hub itself, so the CSP stays `'self'`. The script
 * enables the buttons that submit a form once it handles them: a browser that submits a form by itself loads the
 * page again, with the fields in its address.
 */
const DEBUGGER_HTML = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Hub debugger</title>
    <link rel="icon" type="image/svg+xml" href="icon.svg" />
    <link rel="stylesheet" href="design.css" />
    <link rel="stylesheet" href="debugger.css" />
    <script type="module" src="debugger.js"></script>
  </head>
  <body>
    <a class="skip" href="#updates">Skip to the updates</a>
    <header>
      <h1><img src="icon.svg" alt="" />Hub debugger</h1>
      <div class="status">
        <span id="state" class="badge" role="status">not subscribed</span>
        <span class="small muted">cursor <code id="cursor">no update yet</code></span>
      </div>
      <nav aria-label="Parts of this page">
        <button type="button" data-tab="stream" aria-pressed="true">Stream</button>
        <button type="button" data-tab="publish" aria-pressed="false">Publish</button>
        <button type="button" data-tab="token" aria-pressed="false">Token</button>
      </nav>
    </header>
    <p id="about" class="small muted">This page needs JavaScript.</p>
    <main data-tab="stream">
      <div id="controls">
        <section class="card" data-panel="token" aria-labelledby="token-title">
          <h2 id="token-title">Token</h2>
          <label>Access token
            <input id="token" autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="paste one, or leave it empty" aria-describedby="token-help" />
            <small id="token-help">Stays in this field. It is sent to this hub only, and never stored.</small>
          </label>
          <div id="explained"></div>
        </section>
        <form id="subscribe" class="card" data-panel="stream" aria-labelledby="subscribe-title">
          <h2 id="subscribe-title">Subscribe</h2>
          <label>Topics
            <textarea name="match" rows="1" spellcheck="false" aria-describedby="match-help">*</textarea>
            <small id="match-help">One per line. <code>*</code> stands for every topic.</small>
          </label>
          <details id="more-subscribe">
            <summary>Patterns, and where to start</summary>
            <label>URL Patterns
              <textarea name="match_urlpattern" rows="1" spellcheck="false" placeholder="https://example.com/books/:id" aria-describedby="pattern-help"></textarea>
              <small id="pattern-help">One per line. Receives the updates of every topic that matches.</small>
            </label>
            <label>Last event id
              <input name="last_event_id" autocomplete="off" spellcheck="false" placeholder="from now on" aria-describedby="cursor-help" />
              <small id="cursor-help">Replays the updates after this id; <code>earliest</code> replays the whole history.</small>
            </label>
          </details>
          <div class="row">
            <button id="start" class="primary" disabled>Subscribe</button>
            <button type="button" id="stop" disabled>Stop</button>
          </div>
          <details id="subscribe-code" class="drawer" hidden></details>
        </form>
        <form id="publish" class="card" data-panel="publish" aria-labelledby="publish-title">
          <h2 id="publish-title">Publish</h2>
          <label>Topics
            <textarea name="topic" rows="1" required spellcheck="false" aria-describedby="topic-help"></textarea>
            <small id="topic-help">One per line. The first is the update's own, the others are alternates.</small>
          </label>
          <label>Data
            <textarea name="data" rows="2" spellcheck="false" aria-describedby="data-help">{"hello": "world"}</textarea>
            <small id="data-help">Any text: JSON, HTML, or nothing.</small>
          </label>
          <label class="inline"><input type="checkbox" name="private" /> Private: only for tokens that grant it</label>
          <details id="more-publish">
            <summary>Id, type and retry</summary>
            <div class="pair">
              <label>Id <input name="id" autocomplete="off" spellcheck="false" aria-describedby="id-help" />
                <small id="id-help">Empty: the hub makes one.</small></label>
              <label>Type <input name="type" autocomplete="off" spellcheck="false" aria-describedby="type-help" />
                <small id="type-help">Empty: <code>message</code>.</small></label>
              <label>Retry <input name="retry" inputmode="numeric" pattern="[0-9]*" autocomplete="off" aria-describedby="retry-help" />
                <small id="retry-help">Milliseconds that clients wait before they reconnect.</small></label>
            </div>
          </details>
          <div class="row">
            <button class="primary" disabled>Publish</button>
            <output id="published" class="small"></output>
          </div>
          <details id="publish-code" class="drawer" hidden></details>
        </form>
      </div>
      <div id="live">
        <section id="who" class="card" data-panel="stream" aria-labelledby="who-title" hidden>
          <div class="row between"><h2 id="who-title">Subscribers</h2><span id="subscribers-about" class="small muted">Not loaded yet.</span><button type="button" id="refresh">Refresh</button></div>
          <div class="scroll">
            <table id="subscribers" hidden>
              <thead><tr><th scope="col">Matcher</th><th scope="col">Subscriber</th><th scope="col">Payload</th></tr></thead>
              <tbody></tbody>
            </table>
          </div>
        </section>
        <section class="card" data-panel="stream" aria-labelledby="updates">
          <div class="row between"><h2 id="updates" tabindex="-1">Updates</h2><span id="count" class="small muted">0 shown</span></div>
          <div class="row tools">
            <label class="grow">Topic, id or data contains <input id="filter" type="search" autocomplete="off" spellcheck="false" /></label>
            <label>Type
              <select id="filter-type"><option value="">all</option></select>
            </label>
            <button type="button" id="pause" aria-pressed="false">Pause</button>
            <button type="button" id="clear">Clear</button>
          </div>
          <p id="told" class="unseen" role="status"></p>
          <div id="empty" class="empty">
            <h3>No updates yet</h3>
            <p><button type="button" id="first-step" class="primary">Start receiving</button></p>
            <p class="small muted">Then press <b>Publish</b>: the update appears here, and in every other window that is subscribed.</p>
            <p id="teach-token" class="small muted" hidden>To publish, to read private updates and to list subscribers, paste a token: <code id="teach-command" class="block"></code></p>
          </div>
          <ol id="events" aria-label="Updates, newest first"></ol>
        </section>
        <section id="rights" class="card" data-panel="token" aria-labelledby="rights-title" hidden>
          <h2 id="rights-title">What the token allows</h2>
          <div id="allowed"></div>
        </section>
        <section id="traffic" class="card" data-panel="stream" aria-labelledby="traffic-title" hidden>
          <h2 id="traffic-title">Traffic</h2>
          <figure id="plot">
            <svg viewBox="0 0 600 120" preserveAspectRatio="none" aria-hidden="true"></svg>
            <figcaption class="small muted">
              <span id="traffic-summary"></span>
              <span class="legend" aria-hidden="true">
                <span class="key-rate">updates per second</span>
                <span class="key-subscribers">subscriptions</span>
                <span class="key-away">not connected</span>
              </span>
            </figcaption>
          </figure>
        </section>
      </div>
    </main>
    <footer class="small muted">
      <p>
        <kbd>s</kbd> subscribe · <kbd>x</kbd> stop · <kbd>p</kbd> pause · <kbd>c</kbd> clear ·
        <kbd>/</kbd> filter · <kbd>t</kbd> token · <kbd>n</kbd> new update ·
        <kbd>Ctrl</kbd>+<kbd>Enter</kbd> submits a form
      </p>
      <label class="inline"><input type="checkbox" id="shortcuts-on" checked /> Single-key shortcuts</label>
    </footer>
  </body>
</html>
`;

/** The styles of the page in addition to the design that all pages share. */
const DEBUGGER_CSS = `body > header, #about, body > footer { max-width: 90rem; margin: 0 auto; padding: var(--gap-s) var(--gap); }
body > header { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; justify-content: space-between; align-items: center; gap: var(--gap-s) var(--gap-l); }
body > header h1 { margin: 0; font-size: var(--large); }
nav { display: none; }
main { max-width: 90rem; display: grid; gap: var(--gap); padding: 0 var(--gap); }
main > div { display: grid; gap: var(--gap); align-content: start; min-width: 0; }
@media (min-width: 62.5rem) { main { grid-template-columns: 24rem minmax(0, 1fr); } }
@media (max-width: 62.49rem) {
  #who { order: 1; }
  nav { display: grid; grid-template-columns: repeat(3, 1fr); gap: var(--gap-s); width: 100%; }
  main[data-tab='stream'] [data-panel]:not([data-panel='stream']), main[data-tab='publish'] [data-panel]:not([data-panel='publish']), main[data-tab='token'] [data-panel]:not([data-panel='token']) { display: none; }
}
.card { min-width: 0; }
.card > :last-child, .card li > :last-child, .empty > :last-child { margin-bottom: 0; }
.skip { position: absolute; left: -100vw; z-index: 2; }
.skip:focus { left: var(--gap); top: 0; background: var(--page); padding: var(--gap-s); }
#explained { font-size: var(--small); }
#explained > :last-child { margin-bottom: 0; }
.status { display: flex; flex-wrap: wrap; gap: var(--gap-s) var(--gap); align-items: center; }
code.block { display: block; white-space: pre-wrap; color: var(--text); }
.badge { display: inline-block; border: 1px solid var(--control); border-radius: 1rem; padding: 0 0.625rem; font-size: var(--small); font-weight: 600; }
.badge[data-state='open'] { color: var(--good); border-color: currentColor; }
.badge[data-state='waiting'], .badge[data-state='connecting'] { color: var(--warn); border-color: currentColor; }
.badge[data-state='refused'] { color: var(--bad); border-color: currentColor; border-radius: var(--round); }
button.small { min-height: 1.75rem; padding: 0 0.5rem; }
.row { display: flex; flex-wrap: wrap; gap: var(--gap-s) var(--gap); align-items: center; }
.row h2, .row h3, .tools label { margin: 0; }
.between { justify-content: space-between; margin-bottom: var(--gap-s); }
#who .between { margin-bottom: 0; }
#subscribers-about { flex: 1 1 10rem; }
.scroll { max-height: 9rem; overflow-y: auto; }
#subscribers { margin: 0; }
.tools { align-items: end; margin-bottom: var(--gap); }
.tools .grow { flex: 1 1 12rem; }
.tools select { display: block; margin-top: var(--gap-s); max-width: 10rem; }
form > details { margin-bottom: var(--gap); }
form > details[open] > summary { margin-bottom: var(--gap-s); }
.drawer { border-top: 1px solid var(--line); margin-top: var(--gap); padding-top: var(--gap-s); }
.drawer pre { margin-bottom: var(--gap-s); }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: var(--gap); }
.pair label { margin: 0; }
#events { list-style: none; margin: 0; padding: 0; max-height: 40rem; overflow-y: auto; }
#events > li { border-top: 1px solid var(--line); padding: 0.25rem; }
#events time { font: var(--small)/1.5 var(--mono); color: var(--muted); }
.notice { font-size: var(--small); }
.update > summary { display: flex; gap: var(--gap-s); align-items: baseline; white-space: nowrap; margin: 0; }
.update > summary::before { content: '▸'; color: var(--muted); }
.update[open] > summary::before { content: '▾'; }
.update > summary > * { flex: none; }
.update .badge, .topics, .line { overflow: hidden; text-overflow: ellipsis; }
.update .badge { max-width: 8rem; }
.update > summary > .topics { flex: 0 1 auto; max-width: 45%; font-weight: 600; font-size: var(--small); }
.update > summary > .line { flex: 1 1 0; min-width: 3rem; font: var(--small)/1.5 var(--mono); color: var(--muted); }
.update > div { padding: var(--gap-s) 0 var(--gap-s) 1.125rem; }
.facts { display: grid; grid-template-columns: auto 1fr; gap: 0 var(--gap); align-items: baseline; font-size: var(--small); margin: 0 0 var(--gap-s); }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; display: flex; flex-wrap: wrap; gap: 0 var(--gap); align-items: baseline; }
.data { border: 0; padding: 0; margin: 0; background: none; }
.json { font: var(--small)/1.6 var(--mono); }
.json ul { list-style: none; margin: 0; padding: 0 0 0 1.25rem; border-left: 1px solid var(--line); }
.json-name { color: var(--muted); } .json-string { color: var(--good); } .json-number, .json-boolean { color: var(--warn); } .json-null { color: var(--bad); }
summary { cursor: pointer; }
.granted { font-size: var(--small); margin-bottom: var(--gap); }
.granted .part { padding-left: 1rem; text-indent: -0.75rem; }
.granted .part::before { content: '· '; }
.checks { padding-left: 0; list-style: none; font-size: var(--small); }
.checks > li { margin-bottom: var(--gap-s); }
figure { margin: 0; }
#plot svg { display: block; width: 100%; height: 5rem; }
.axis { stroke: var(--control); } .rate { fill: var(--accent); } .away { fill: var(--line); opacity: 0.6; }
.subscribers { fill: none; stroke: var(--good); stroke-width: 2; vector-effect: non-scaling-stroke; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 var(--gap); }
.legend { display: flex; flex-wrap: wrap; gap: 0 var(--gap); }
.legend span::before { content: ''; display: inline-block; width: 0.75rem; height: 0.75rem; margin-right: 0.375rem; background: var(--accent); }
.legend .key-subscribers::before { height: 2px; vertical-align: middle; background: var(--good); }
.legend .key-away::before { background: var(--line); }
@media (max-width: 40rem) { .ms, .update .badge[data-type='message'] { display: none; } .update .badge { max-width: 5rem; } .tools .grow { flex-basis: 100%; } }
`;

const FILES: Readonly<Record<string, readonly [type: string, content: string]>> = {
  '': ['text/html; charset=utf-8', DEBUGGER_HTML],
  'icon.svg': ['image/svg+xml', MARK_SVG],
  'design.css': ['text/css; charset=utf-8', DESIGN_CSS],
  'debugger.css': ['text/css; charset=utf-8', DEBUGGER_CSS],
};

/** `HUB/debug/…`: a page for subscribing and publishing. It contains no secret and needs no token itself. */
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

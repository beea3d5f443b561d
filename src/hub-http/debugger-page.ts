import { readsLegacyTokens } from '../auth/verify.ts';
import type { DebuggerSettings } from '../debugger/token.ts';
import { answer } from '../http/answer.ts';
import { DESIGN_CSS } from '../http/page.ts';
import type { Exchange } from '../http/exchange.ts';
import { createScriptAnswer } from './browser-script.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { createPlaygroundToken } from './playground.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/** The page of the debugger. No script or style comes from elsewhere, so the CSP stays `'self'`. */
const DEBUGGER_HTML = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Hub debugger</title>
    <link rel="stylesheet" href="design.css" />
    <link rel="stylesheet" href="debugger.css" />
    <script type="module" src="debugger.js"></script>
  </head>
  <body>
    <a class="skip" href="#updates">Skip to the updates</a>
    <header>
      <div>
        <h1>Hub debugger</h1>
        <p id="about" class="small muted">The page needs JavaScript.</p>
      </div>
      <div class="status">
        <span id="state" class="badge" role="status">not subscribed</span>
        <span class="small muted">cursor <code id="cursor">none yet</code></span>
      </div>
    </header>
    <main>
      <div id="controls">
        <section class="card" aria-labelledby="token-title">
          <h2 id="token-title">Token</h2>
          <label>Access token
            <input id="token" autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="paste one, or leave it empty" />
          </label>
          <p class="small muted">It stays in this field: sent to this hub, never stored.</p>
          <div id="explained"></div>
        </section>
        <form id="subscribe" class="card" aria-labelledby="subscribe-title">
          <h2 id="subscribe-title">Subscribe</h2>
          <label>Topics, one a line <textarea name="match" rows="2" spellcheck="false">*</textarea></label>
          <label>URL Patterns, one a line
            <textarea name="match_urlpattern" rows="1" spellcheck="false" placeholder="https://example.com/books/:id"></textarea>
          </label>
          <label>From behind the update
            <input name="last_event_id" autocomplete="off" spellcheck="false" placeholder="an id, or earliest; empty: from now on" />
          </label>
          <div class="row">
            <button class="primary">Subscribe</button>
            <button type="button" id="stop" disabled>Stop</button>
          </div>
        </form>
        <form id="publish" class="card" aria-labelledby="publish-title">
          <h2 id="publish-title">Publish</h2>
          <label>Topics, one a line <textarea name="topic" rows="2" required spellcheck="false"></textarea></label>
          <label>Data <textarea name="data" rows="3" spellcheck="false">{"hello": "world"}</textarea></label>
          <div class="pair">
            <label>Id <input name="id" autocomplete="off" spellcheck="false" placeholder="made by the hub" /></label>
            <label>Type <input name="type" autocomplete="off" spellcheck="false" placeholder="message" /></label>
            <label>Retry, in ms <input name="retry" inputmode="numeric" pattern="[0-9]*" autocomplete="off" placeholder="none" /></label>
          </div>
          <label class="inline"><input type="checkbox" name="private" /> Private: only for tokens that grant it</label>
          <div class="row">
            <button class="primary">Publish</button>
            <output id="published" class="small"></output>
          </div>
        </form>
      </div>
      <div id="live">
        <section aria-labelledby="updates" class="card">
          <h2 id="updates" tabindex="-1">Updates</h2>
          <div class="row tools">
            <label class="grow">Topic, id or data contains <input id="filter" type="search" autocomplete="off" spellcheck="false" /></label>
            <label>Type
              <select id="filter-type"><option value="">all</option></select>
            </label>
            <button type="button" id="pause" aria-pressed="false">Pause</button>
            <button type="button" id="clear">Clear</button>
          </div>
          <p id="count" class="small muted">0 shown</p>
          <p id="told" class="unseen" role="status"></p>
          <div id="empty" class="empty">
            <h3>Nothing here yet</h3>
            <ol>
              <li id="teach-token" hidden>To publish, and to read private updates, paste a token: <code id="teach-command"></code></li>
              <li>Press <b>Subscribe</b>: the topic <code>*</code> stands for everything.</li>
              <li>Press <b>Publish</b>: the update appears here, in every window that is subscribed.</li>
              <li>Restart the hub: this page comes back to where it was, and says so if the history has a gap.</li>
            </ol>
          </div>
          <ol id="events" aria-label="Updates, newest first"></ol>
        </section>
        <section id="rights" aria-labelledby="rights-title" class="card" hidden>
          <h2 id="rights-title">What the token allows</h2>
          <div id="allowed"></div>
        </section>
        <section aria-labelledby="traffic-title" class="card">
          <h2 id="traffic-title">Traffic</h2>
          <figure id="plot">
            <svg viewBox="0 0 600 120" preserveAspectRatio="none" aria-hidden="true"></svg>
            <figcaption class="small muted">
              <span id="traffic-summary"></span>
              <span class="legend" aria-hidden="true">
                <span class="key-rate">updates a second</span>
                <span class="key-subscribers">subscriptions</span>
                <span class="key-away">not connected</span>
              </span>
            </figcaption>
          </figure>
        </section>
        <section id="code" aria-labelledby="code-title" class="card" hidden>
          <h2 id="code-title">As code</h2>
          <p id="code-about" class="small muted"></p>
          <div class="row between"><h3>curl</h3><button type="button" id="copy-curl" aria-label="Copy curl">Copy</button></div>
          <pre id="curl" tabindex="0" aria-label="curl"></pre>
          <div class="row between"><h3>JavaScript</h3><button type="button" id="copy-javascript" aria-label="Copy JavaScript">Copy</button></div>
          <pre id="javascript" tabindex="0" aria-label="JavaScript"></pre>
        </section>
        <section id="who" aria-labelledby="who-title" class="card" hidden>
          <div class="row between"><h2 id="who-title">Who is subscribed</h2><button type="button" id="refresh">Refresh</button></div>
          <p id="subscribers-about" class="small muted">Not asked yet.</p>
          <table id="subscribers" hidden>
            <thead><tr><th scope="col">Matcher</th><th scope="col">Subscriber</th><th scope="col">Payload</th></tr></thead>
            <tbody></tbody>
          </table>
        </section>
      </div>
    </main>
    <footer class="small muted">
      <p>
        <kbd>s</kbd> subscribe · <kbd>x</kbd> stop · <kbd>p</kbd> pause · <kbd>c</kbd> clear ·
        <kbd>/</kbd> filter · <kbd>t</kbd> token · <kbd>n</kbd> new update ·
        <kbd>Ctrl</kbd>+<kbd>Enter</kbd> in a form sends it
      </p>
      <label class="inline"><input type="checkbox" id="shortcuts-on" checked /> Single-key shortcuts</label>
    </footer>
  </body>
</html>
`;

/** What the page needs beyond the design that all pages share. */
const DEBUGGER_CSS = `body > header, body > footer { max-width: 90rem; margin: 0 auto; padding: var(--gap); }
body > header h1 { margin-bottom: 0; }
body > header { display: flex; flex-wrap: wrap; justify-content: space-between; gap: var(--gap-s) var(--gap-l); }
body > header p { margin: var(--gap-s) 0 0; }
main { max-width: 90rem; display: grid; gap: var(--gap); padding: 0 var(--gap); }
main > div { display: grid; gap: var(--gap); align-content: start; min-width: 0; }
@media (min-width: 60rem) { main { grid-template-columns: 24rem minmax(0, 1fr); } }
.card { min-width: 0; }
.card > :last-child, .card li > :last-child { margin-bottom: 0; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: var(--gap); top: 0; background: var(--page); padding: var(--gap-s); }
.status { display: flex; flex-wrap: wrap; gap: var(--gap-s) var(--gap); align-items: center; }
.badge { display: inline-block; border: 1px solid var(--control); border-radius: 1rem; padding: 0 0.625rem; font-size: var(--small); font-weight: 600; }
.badge[data-state='open'] { color: var(--good); border-color: currentColor; }
.badge[data-state='waiting'], .badge[data-state='connecting'] { color: var(--warn); border-color: currentColor; }
.badge[data-state='refused'] { color: var(--bad); border-color: currentColor; border-radius: var(--round); }
.row { display: flex; flex-wrap: wrap; gap: var(--gap-s) var(--gap); align-items: center; }
.row h2, .row h3, .tools label { margin: 0; }
.between { justify-content: space-between; margin-bottom: var(--gap-s); }
.tools { align-items: end; margin-bottom: var(--gap-s); }
.tools .grow { flex: 1 1 12rem; }
.tools select { display: block; margin-top: var(--gap-s); max-width: 10rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: var(--gap); margin-bottom: var(--gap); }
.pair label { margin: 0; }
#count { margin-bottom: var(--gap-s); }
#events { list-style: none; margin: 0; padding: 0; max-height: 36rem; overflow-y: auto; }
#events > li { border-top: 1px solid var(--line); padding: var(--gap-s) 0.25rem; }
#events time { font: var(--small)/1.5 var(--mono); color: var(--muted); }
.notice { font-size: var(--small); }
.event-head { display: flex; flex-wrap: wrap; gap: 0 var(--gap-s); align-items: baseline; }
.data { border: 0; padding: 0; margin: 0; background: none; }
.json { font: var(--small)/1.6 var(--mono); }
.json ul { list-style: none; margin: 0; padding: 0 0 0 1.25rem; border-left: 1px solid var(--line); }
.json-name { color: var(--muted); } .json-string { color: var(--good); } .json-number, .json-boolean { color: var(--warn); } .json-null { color: var(--bad); }
summary { cursor: pointer; }
.topics { font-weight: 600; }
.granted { font-size: var(--small); margin-bottom: var(--gap); }
.granted .part { padding-left: 1rem; text-indent: -0.75rem; }
.granted .part::before { content: '· '; }
.checks { padding-left: 0; list-style: none; font-size: var(--small); }
.checks > li { margin-bottom: var(--gap-s); }
figure { margin: 0; }
#plot svg { display: block; width: 100%; height: 7.5rem; }
.axis { stroke: var(--control); } .rate { fill: var(--accent); } .away { fill: var(--line); opacity: 0.6; }
.subscribers { fill: none; stroke: var(--good); stroke-width: 2; vector-effect: non-scaling-stroke; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 var(--gap); }
.legend { display: flex; flex-wrap: wrap; gap: 0 var(--gap); }
.legend span::before { content: ''; display: inline-block; width: 0.75rem; height: 0.75rem; margin-right: 0.375rem; background: var(--accent); }
.legend .key-subscribers::before { height: 2px; vertical-align: middle; background: var(--good); }
.legend .key-away::before { background: var(--line); }
`;

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

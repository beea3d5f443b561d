import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, it, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createTokenVerifier } from '../../../src/auth/verify.ts';
import { ConnectionCounter, type HubEndpoint } from '../../../src/hub-http/endpoint.ts';
import { createHubHandler } from '../../../src/hub-http/hub-handler.ts';
import { Hub } from '../../../src/hub/hub.ts';
import { MatcherCache } from '../../../src/hub/matcher.ts';
import { profiles } from '../../../src/hub/profile.ts';
import { hubBase } from '../../../src/hub/topic.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { processAround, RecordingSink } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

const PATH = '/.well-known/hub';

setFlagsFromString('--expose-gc');
/** Collects all garbage at once. */
const collect = (): void => void runInNewContext('gc')();

describe('a waiting stream', () => {
  it('does not keep the generation that opened it in memory, and continues', async (test) => {
    const { hub, endpoint } = setUp(test);
    const { sink, generation } = await openUnder(endpoint);
    for (let i = 0; i < 5; i += 1) {
      await turn();
      collect();
    }
    assert.equal(generation.deref(), undefined);
    await hub.publish({
      ...{ id: '1', topics: ['a'], data: 'x', private: false, type: null, retry: null },
    });
    await turn();
    assert.deepEqual(sink.ids(), ['1']);
  });

  it('keeps neither its exchange nor its response in memory', async (test) => {
    const { endpoint } = setUp(test);
    const handle = createHubHandler(endpoint());
    const sinks: RecordingSink[] = [];
    const exchanges: WeakRef<Exchange>[] = [];
    const open = async (): Promise<void> => {
      const sink = new RecordingSink();
      const exchange = fakeExchange({ target: `${PATH}?match=a`, stream: () => sink });
      exchanges.push(new WeakRef(exchange));
      sinks.push(sink);
      await handle(exchange, async () => {});
    };
    for (let i = 0; i < 20; i += 1) await open();
    for (let i = 0; i < 5; i += 1) {
      await turn();
      collect();
    }
    const kept = exchanges.filter((exchange) => exchange.deref() !== undefined).length;
    assert.equal(kept, 0, `${kept} of 20 exchanges are kept`);
    assert.equal(sinks.length, 20);
  });

  it('is removed completely if the header cannot be sent', async (test) => {
    const { hub, endpoint } = setUp(test);
    const settings = endpoint({ connectionLimits: { max: 1, maxPerClient: 0 } });
    const handle = createHubHandler(settings);
    const failing = fakeExchange({
      target: `${PATH}?match=a`,
      stream: () => {
        throw new Error('the head cannot be sent');
      },
    });
    for (let i = 0; i < 3; i += 1) {
      await assert.rejects(async () => handle(failing, async () => {}), /the head cannot be sent/);
      assert.equal(hub.counts.connected, 0);
    }
    const sink = new RecordingSink();
    await handle(fakeExchange({ target: `${PATH}?match=a`, stream: () => sink }), async () => {});
    assert.equal(hub.counts.connected, 1, 'its place has been given back');
    sink.leave();
    assert.equal(hub.counts.connected, 0);
  });
});

/** In a frame of its own, so that nothing here holds what it has made. */
async function openUnder(
  endpoint: () => HubEndpoint,
): Promise<{ sink: RecordingSink; generation: WeakRef<HubEndpoint['verifier']> }> {
  const settings = endpoint();
  const sink = new RecordingSink();
  const exchange = fakeExchange({ target: `${PATH}?match=a`, stream: () => sink });
  await createHubHandler(settings)(exchange, async () => {});
  return { sink, generation: new WeakRef(settings.verifier) };
}

function setUp(test: TestContext) {
  const clock = new TestClock();
  const around = processAround(clock);
  const base = hubBase(null, PATH);
  const names = { profile: profiles.hub, hubPath: PATH, base };
  const transport = createMemoryTransport({ size: 10 });
  const hub = new Hub({ transport, names, ...around });
  test.after(() => hub.close());
  const endpoint = (changes: Partial<HubEndpoint> = {}): HubEndpoint => ({
    ...around,
    hub,
    profile: profiles.hub,
    path: PATH,
    base,
    detailType: 'urn:detail',
    cookieName: 'token',
    authorizationServers: [],
    verifier: createTokenVerifier({
      ...{
        issuers: [],
        detailType: 'urn:detail',
        base,
        cache: null,
        legacyClaim: null,
        legacyForms: { strings: false, topics: false, templates: false },
      },
      ...around,
    }),
    anonymous: true,
    debugger: false,
    debuggerScript: null,
    liveScript: null,
    clientScript: null,
    playground: null,
    corsOrigins: [],
    publishOrigins: [],
    publicOrigins: [],
    resourceIdentifier: null,
    stream: { heartbeatMs: 0, dispatchTimeoutMs: 1000, maxBufferBytes: 1000, announced: false },
    writeTimeoutMs: 0,
    maxRequestBodySize: 1000,
    maxPatternSize: 1000,
    connections: new ConnectionCounter(),
    connectionLimits: { max: 0, maxPerClient: 0 },
    matcherCache: new MatcherCache(10),
    legacyTopics: null,
    random: () => 0.5,
    ...changes,
  });
  return { hub, endpoint };
}

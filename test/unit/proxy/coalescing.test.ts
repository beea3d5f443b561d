import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Identity } from '../../../src/http/identity.ts';
import {
  type CoalescedRequest,
  type Part,
  RequestCoalescer,
} from '../../../src/proxy/coalescing.ts';
import { requestKey } from '../../../src/proxy/shareable.ts';
import { SharedResponse, SharedResponseMemory } from '../../../src/proxy/shared-response.ts';
import type { RequestSharing } from '../../../src/proxy/shared-forwarding.ts';
import { TestClock } from '../../support/test-clock.ts';
import { TurnedScheduler } from '../../support/turned-scheduler.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { origin, proxyTo, until } from './gateway.ts';

const question = {
  method: 'GET',
  target: '/a',
  headers: new HeaderList(),
  parameters: new Map<string, string>(),
};
const keyOf = (
  exchange: Partial<Exchange> = {},
  asked: Partial<Parameters<typeof requestKey>[1]> = {},
): string | null => requestKey(fakeExchange(exchange), { ...question, ...asked });
const withField = (name: string, value: string): { headers: HeaderList } => ({
  headers: HeaderList.of({ [name]: value }),
});

describe('the key of requests that look identical to an upstream', () => {
  it('contains all that the upstream sees', () => {
    const bob = new Identity();
    bob.user = 'bob';
    const keys = [
      keyOf(),
      keyOf({ host: 'other' }),
      keyOf({ scheme: 'https' }),
      keyOf({ identity: bob }),
      keyOf({}, { target: '/b' }),
      keyOf({}, { parameters: new Map([['REMOTE_USER', 'bob']]) }),
      ...['Accept', 'User-Agent', 'CF-Ray', 'X-Forwarded-Host', 'If-None-Match'].map((name) =>
        keyOf({}, withField(name, 'x')),
      ),
      keyOf({}, withField('X-Forwarded-For', '<script>, 192.0.2.1')),
      keyOf({}, withField('X-Real-IP', '192.0.2.9')),
      keyOf({}, withField('traceparent', '00-1-2-01')),
    ];
    assert.equal(new Set(keys).size, keys.length);
  });

  it('omits the address of the client, and which cookies there are', () => {
    for (const [name, values] of [
      ['X-Forwarded-For', ['192.0.2.1', '192.0.2.2, ::1']],
      ['X-Real-IP', ['127.0.0.1']],
      ['Cookie', ['a=1', 'b=2']],
    ] as const) {
      const keys = values.map((value) => keyOf({}, withField(name, value)));
      assert.equal(new Set(keys).size, 1, name);
      assert.notEqual(keys[0], keyOf(), 'but not that there is one');
    }
    const address = (text: string) => keyOf({}, { parameters: new Map([['REMOTE_ADDR', text]]) });
    assert.equal(address('192.0.2.1'), address('192.0.2.2'));
  });

  it('does not exist for a request whose response must not be shared', () => {
    assert.equal(keyOf({ hasBody: true }), null);
    assert.equal(keyOf({ method: 'POST' }), null);
    assert.equal(keyOf({}, { method: 'POST' }), null);
    assert.equal(keyOf({}, withField('Authorization', 'x')), null);
    assert.equal(keyOf({}, withField('Range', 'bytes=0-1')), null);
  });
});

describe('request coalescing', () => {
  const coalesced = (exchange: Partial<Exchange> = {}): CoalescedRequest => ({
    exchange: fakeExchange(exchange),
    key: 'k',
    fields: new HeaderList(),
    gatherMs: 0,
    keepMs: 1_000,
    forOthers: (fields) => fields.clone(),
  });
  const HEAD = { status: 200, headers: new HeaderList(), received: '1.1' } as const;

  async function answered(part: Part): Promise<void> {
    assert.ok(part.kind === 'lead');
    part.recorder.head(HEAD, 'localhost:1');
    const body = part.recorder.tee(fakeExchange({}).begin({ ...HEAD, source: 'upstream' }));
    body.write(Buffer.from('page'));
    part.recorder.complete(new HeaderList());
    part.recorder.close();
  }

  it('resumes no more than ten requests per turn of the event loop', async () => {
    const scheduler = new TurnedScheduler();
    const coalescer = new RequestCoalescer(new SharedResponseMemory(), scheduler, new TestClock());
    const lead = await coalescer.join(coalesced());
    let released = 0;
    let most = 0;
    const parts = Array.from({ length: 1_000 }, async () => {
      const part = await coalescer.join(coalesced());
      released += 1;
      return part;
    });
    await answered(lead);
    assert.equal(released, 0);
    let before = 0;
    await scheduler.all(() => {
      most = Math.max(most, released - before);
      before = released;
    });
    assert.equal(released, 1_000);
    assert.ok(most <= 10, String(most));
    for (const part of await Promise.all(parts)) assert.equal(part.kind, 'follow');
  });

  it('makes no request wait longer than 5 s', async () => {
    const clock = new TestClock();
    const scheduler = new TurnedScheduler();
    const coalescer = new RequestCoalescer(new SharedResponseMemory(), scheduler, clock);
    assert.equal((await coalescer.join({ ...coalesced(), keepMs: 60_000 })).kind, 'lead');
    const part = coalescer.join(coalesced());
    clock.advance(5_000);
    await scheduler.all();
    assert.equal((await part).kind, 'alone');
  });

  it('starts over after an aborted request that no client waited for', async () => {
    const coalescer = new RequestCoalescer(
      new SharedResponseMemory(),
      new TurnedScheduler(),
      new TestClock(),
    );
    const part = await coalescer.join(coalesced({ abandoned: true }));
    assert.ok(part.kind === 'lead');
    part.recorder.close();
    assert.equal((await coalescer.join(coalesced())).kind, 'lead');
  });

  it('keeps a response for its window, and frees its memory afterwards', async () => {
    const clock = new TestClock();
    const memory = new SharedResponseMemory();
    const coalescer = new RequestCoalescer(memory, new TurnedScheduler(), clock);
    await answered(await coalescer.join(coalesced()));
    const part = await coalescer.join(coalesced());
    assert.ok(part.kind === 'follow');
    assert.equal(memory.bytes, 4);
    clock.advance(1_000);
    assert.equal(memory.bytes, 4, 'somebody reads it');
    part.hold.release();
    assert.equal((await coalescer.join(coalesced())).kind, 'lead');
  });
});

const byTarget: RequestSharing = {
  groupOf: () => ({ name: '', gatherMs: 0, keepMs: 60_000 }),
  spread: () => Promise.resolve(),
  forOthers: (fields) => fields.clone(),
  shared: () => {},
};

/** Asks, and reads nothing of the answer. */
async function stalled(port: number, target: string): Promise<net.Socket> {
  const socket = net.connect({ port, host: '127.0.0.1' });
  await once(socket, 'connect');
  socket.on('error', () => {});
  socket.pause();
  socket.write(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`);
  return socket;
}

describe('responses that are shared with slow readers', () => {
  it('are cut off if a newer response needs the memory', () => {
    const memory = new SharedResponseMemory(10);
    const head = { status: 200, headers: new HeaderList(), received: '1.1' } as const;
    const [old, young] = [1, 2].map(
      () => new SharedResponse(memory, head, new HeaderList(), 'localhost:1'),
    );
    assert.ok(old !== undefined && young !== undefined);
    const cut: string[] = [];
    const [reader, other] = [old.hold(), young.hold()];
    reader.onCut(() => cut.push('old'));
    other.onCut(() => cut.push('young'));
    assert.ok(old.add(Buffer.alloc(6)));
    assert.ok(young.add(Buffer.alloc(4)));
    assert.deepEqual(cut, []);
    assert.ok(young.add(Buffer.alloc(5)));
    assert.deepEqual(cut, ['old']);
    assert.equal(old.isCut, true);
    assert.equal(memory.bytes, 9);
    assert.equal(young.add(Buffer.alloc(2)), false, 'one alone has the bound too');
    reader.release();
    other.release();
    assert.equal(memory.bytes, 0);
  });

  const PAGE = Buffer.alloc(1_000_000, 'x');
  const BOUND = 4_000_000;

  it('stay within the memory limit, whoever reads them: the oldest is dropped first', async () => {
    let requests = 0;
    await using app = await origin((_request, response) => {
      requests += 1;
      response.end(PAGE);
    });
    const sharedResponseMemory = new SharedResponseMemory(BOUND);
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget, sharedResponseMemory });
    const sockets: net.Socket[] = [];
    for (let page = 0; page < 12; page += 1) {
      for (let reader = 0; reader < 4; reader += 1) {
        sockets.push(await stalled(gateway.http1, `/${page}`));
      }
      await until(() => requests > page, 'the app is asked');
      assert.ok(sharedResponseMemory.bytes <= BOUND);
    }
    const last = await fetch(`http://127.0.0.1:${gateway.http1}/new`);
    assert.equal((await last.arrayBuffer()).byteLength, PAGE.length);
    assert.ok(sharedResponseMemory.bytes <= BOUND, String(sharedResponseMemory.bytes));
    for (const socket of sockets) socket.destroy();
  });

  it('delay no other client: the first may read as slowly as it likes', async () => {
    let requests = 0;
    await using app = await origin((_request, response) => {
      requests += 1;
      response.end(PAGE);
    });
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget });
    const slow = await stalled(gateway.http1, '/');
    await until(() => requests === 1, 'the app is asked');
    const answers = Array.from({ length: 20 }, async () => {
      const answer = await fetch(`http://127.0.0.1:${gateway.http1}/`, {
        headers: { connection: 'close' },
      });
      return (await answer.arrayBuffer()).byteLength;
    });
    const sizes = await Promise.all(answers);
    assert.deepEqual(new Set(sizes), new Set([PAGE.length]));
    slow.destroy();
  });

  it('are delivered in full even if they are too large to share', async () => {
    const large = Buffer.alloc(3_000_000, 'y');
    await using app = await origin((_request, response) => void response.end(large));
    const sharedResponseMemory = new SharedResponseMemory();
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget, sharedResponseMemory });
    const both = await Promise.all(
      [1, 2].map(async () => {
        const answer = await fetch(`http://127.0.0.1:${gateway.http1}/`);
        return (await answer.arrayBuffer()).byteLength;
      }),
    );
    assert.deepEqual(both, [large.length, large.length]);
    assert.equal(sharedResponseMemory.bytes, 0);
  });
});

import { registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { encodeConfig } from '../../../src/config/serialize.ts';
import { createGateway, parseHubfile } from '../../../src/index.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { Listener } from '../../../src/server/listener.ts';
import { freePort } from '../../support/free-port.ts';
import { send } from '../../support/http.ts';
import { TestClock } from '../../support/test-clock.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('resources that a configuration has opened', () => {
  it('are closed when the next configuration is active', async (test) => {
    const { gateway, config, open } = await start(test);
    const closed = once(open.events, 'closed');
    await gateway.reload(config('second'));
    await closed;
    assert.deepEqual([...open.names], ['second']);
  });

  it('are closed when a port cannot be bound, including the ports before it', async (test) => {
    const { gateway, config, open, port } = await start(test);
    const taken = createServer().listen(0, '127.0.0.1');
    test.after(() => taken.close());
    await once(taken, 'listening');
    const { port: theirs } = taken.address() as AddressInfo;
    const ours = await freePort();
    await assert.rejects(gateway.reload(config('second', [ours, theirs])), {
      code: 'listen-failed',
    });
    assert.deepEqual([...open.names], ['first']);
    await assert.rejects(send(`http://127.0.0.1:${ours}/`), { code: 'ECONNREFUSED' });
    assert.equal((await send(`http://127.0.0.1:${port}/`)).body, 'first');
  });

  it('are closed when a port that changes owners cannot be bound in the end', async (test) => {
    const { gateway, config, open, port } = await start(test);
    // The same port at another address: for all that is known, only the configuration in force has it.
    const taken = createServer().listen(port, '::1');
    test.after(() => taken.close());
    await once(taken, 'listening');
    const prepared = await gateway.prepare(config('second', [port], '::1'));
    assert.deepEqual([...open.names], ['first', 'second']);
    await assert.rejects(prepared.commit(), { code: 'listen-failed' });
    assert.deepEqual([...open.names], ['first']);
    assert.equal((await send(`http://127.0.0.1:${port}/`)).body, 'first');
  });

  it('are closed by a stop after a start that has failed, with the timers of the process', async (test) => {
    const taken = createServer().listen(0, '127.0.0.1');
    test.after(() => taken.close());
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    const storage = await temporaryDirectory(test);
    const clock = new TestClock();
    const text = `{\n\tadmin off\n\tstorage ${storage}\n}\nhttp://127.0.0.1:${port} {\n\tbind 127.0.0.1\n\trespond x\n}\n`;
    const gateway = createGateway(parseHubfile(text), { clock });
    await assert.rejects(gateway.start(), { code: 'listen-failed' });
    await gateway.stop();
    assert.equal(clock.waiting, 0);
  });

  it('are closed by a stop that leaves no listener at its signal', async (test) => {
    const { gateway, open } = await start(test);
    const { signal } = new AbortController();
    await gateway.stop(signal);
    assert.deepEqual([...open.names], []);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  for (const [from, bind] of [
    ['its own ports', '127.0.0.1'],
    ['ports that change hands', 'localhost'],
  ] as const) {
    it(`are closed when a listener cannot serve the configuration, and no listener does: ${from}`, async (test) => {
      const { gateway, config, open, port } = await start(test);
      const further = await freePort();
      await gateway.reload(config('second', [port, further]));
      const ready = Listener.prototype.ready;
      test.mock.method(Listener.prototype, 'ready', function (this: Listener, ...args: never) {
        if (this.port === further) throw new Error('no server can be made of it');
        return ready.apply(this, args);
      });
      const third = gateway.reload(config('third', [port, further], bind));
      await assert.rejects(third, /no server can be made of it/);
      assert.deepEqual([...open.names], ['second']);
      for (const each of [port, further]) {
        assert.equal((await send(`http://127.0.0.1:${each}/`)).body, 'second');
      }
      test.mock.restoreAll();
      await gateway.reload(config('third', [port, further], bind));
      assert.equal((await send(`http://127.0.0.1:${further}/`)).body, 'third');
    });
  }
});

describe('a configuration that is displayed', () => {
  it('contains no credentials in header fields and URLs', () => {
    const config = parseHubfile(
      ':8080 {\n\treverse_proxy localhost:3000 {\n\t\theader_up Authorization "Bearer of-bad-news"\n\t}\n}\n',
      { env: {} },
    );
    const shown = JSON.stringify(
      encodeConfig(config, registry, { showSecrets: false, brief: false }),
    );
    assert.equal(shown.includes('of-bad-news'), false);
    const all = JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: false }));
    assert.equal(all.includes('of-bad-news'), true);
  });
});

async function start(test: TestContext) {
  const storage = await temporaryDirectory(test);
  const port = await freePort();
  const names = new Set<string>();
  const events = new EventTarget();
  // The access log of a site stands for all that a generation opens.
  const openLog = ({ output }: { readonly output: string }) => {
    const name = output.split('/').at(-1) ?? '';
    names.add(name);
    return {
      log: silentLogger,
      close() {
        names.delete(name);
        events.dispatchEvent(new Event('closed'));
      },
    };
  };
  const config = (name: string, ports: readonly number[] = [port], bind = '127.0.0.1') =>
    parseHubfile(
      `{\n\tadmin off\n\tauto_https off\n\tstorage ${storage}\n}\n${ports
        .map(
          (one) =>
            `http://127.0.0.1:${one} {\n\tbind ${bind}\n\trespond ${name}\n\tlog {\n\t\toutput file ${join(storage, name)}\n\t}\n}\n`,
        )
        .join('')}`,
      { env: {} },
    );
  const gateway = createGateway(config('first'), { openLog });
  test.after(() => gateway.stop());
  await gateway.start();
  return { gateway, config, port, open: { names, events } };
}

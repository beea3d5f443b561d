import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as settled } from 'node:timers/promises';
import { PasswordChecks } from '../../../src/directives/basic-auth/hash-check.ts';
import { fairShareNetwork } from '../../../src/http/rate-limits.ts';

/** Checks that the test answers one by one; `asked` has them in the order of service. */
function checks(places = 1) {
  const asked: string[] = [];
  const answers: ((isRight: boolean) => void)[] = [];
  const made = new PasswordChecks(({ password }) => {
    asked.push(password);
    return new Promise((resolve) => answers.push(resolve));
  }, places);
  const serveAll = async (): Promise<void> => {
    await settled();
    for (let answer = answers.shift(); answer !== undefined; answer = answers.shift()) {
      answer(false);
      await settled();
    }
  };
  return { made, asked, serveAll };
}

describe('checks of passwords (basic_auth)', () => {
  it('do not delay a client that has logged in before, however many others try', async () => {
    const { made, asked, serveAll } = checks();
    made.remember('192.0.2.1');
    const all = Array.from({ length: 240 }, (_, at) =>
      made.matches({ password: 'wrong', hash: '' }, `10.${at % 60}.0.1`),
    );
    all.push(made.matches({ password: 'right', hash: '' }, '192.0.2.1'));
    await serveAll();
    await Promise.all(all);
    assert.ok(asked.indexOf('right') <= 2, String(asked.indexOf('right')));
  });

  it('give a new address its turn among the networks, not after all waiting checks', async () => {
    const { made, asked, serveAll } = checks();
    const all = Array.from({ length: 240 }, (_, at) =>
      made.matches({ password: 'wrong', hash: '' }, `10.0.${at % 4}.${at}`),
    );
    all.push(made.matches({ password: 'right', hash: '' }, '192.0.2.1'));
    await serveAll();
    await Promise.all(all);
    assert.ok(asked.indexOf('right') <= 5, String(asked.indexOf('right')));
  });

  it('reject clients of the network with the most waiting checks once there are too many', async () => {
    const { made, asked, serveAll } = checks();
    const wrong = Array.from({ length: 300 }, (_, at) =>
      made
        .matches({ password: 'wrong', hash: '' }, `10.0.${at % 4}.${at % 200}`)
        .catch(({ status }: { status: number }) => status),
    );
    const right = made.matches({ password: 'right', hash: '' }, '192.0.2.1');
    await serveAll();
    assert.equal(await right, false);
    assert.ok(asked.includes('right'));
    const answers = await Promise.all(wrong);
    assert.ok(answers.includes(503));
  });

  it('run several at a time', async () => {
    const { made, asked, serveAll } = checks(3);
    const all = [1, 2, 3, 4].map((at) =>
      made.matches({ password: `${at}`, hash: '' }, `10.0.0.${at}`),
    );
    await settled();
    assert.equal(asked.length, 3);
    await serveAll();
    await Promise.all(all);
  });
});

describe('the network whose clients share turns', () => {
  for (const [address, network] of [
    ['192.0.2.77', '192.0.2'],
    ['::ffff:192.0.2.77', '192.0.2'],
    ['2001:db8:1:ab12:3:4:5:6', '2001:db8:1:ab'],
    ['2001:db8:1:abff::', '2001:db8:1:ab'],
    ['2001:db8::1', '2001:db8:0:0'],
    ['::1', '0:0:0:0'],
  ] as const) {
    it(`for ${address} is ${network}`, () => {
      assert.equal(fairShareNetwork(address), network);
    });
  }
});

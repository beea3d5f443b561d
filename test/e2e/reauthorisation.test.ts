import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway, startLibraryGateway } from '../support/gateway.ts';
import { openStream, send } from '../support/http.ts';
import { FORM, signToken } from '../support/hub-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEYS = {
  a: 'the key of issuer a, long enough to be',
  b: 'the key of issuer b, long enough to be',
};

describe('a reload with open streams', () => {
  // Streams that end are spread over ten seconds, so that is how long this may take.
  it('closes those whose issuer, key or permission was removed, and no other', async (test) => {
    const port = await freePort();
    const origin = `http://localhost:${port}`;
    const hub = `${origin}/.well-known/hub`;
    const site = (issuers: Record<string, string>, more: string): string =>
      `${origin} {\n\thub {\n${Object.entries(issuers)
        .map(
          ([id, key]) =>
            `\t\tissuer ${id} {\n\t\t\tpublisher {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t}\n`,
        )
        .join('')}\t\ttransport memory\n${more}\t}\n}\n`;
    const gateway = await startGateway(test, site(KEYS, '\t\tanonymous\n'));
    const open = async (issuer?: 'a' | 'b') => {
      const token = issuer && (await signToken(KEYS[issuer], { iss: issuer, aud: hub }));
      const headers = token === undefined ? [] : [['Authorization', `Bearer ${token}`] as const];
      const stream = await openStream(test, `${hub}?match=t`, { headers });
      assert.equal(stream.status, 200);
      return stream;
    };
    const [a, b, anonymous] = [await open('a'), await open('b'), await open()];

    const unconcerned = await gateway.reload(site(KEYS, '\t\tanonymous\n\t\theartbeat 5s\n'));
    assert.equal(unconcerned.endingStreams, 0);
    const withoutB = await gateway.reload(site({ a: KEYS.a }, '\t\tanonymous\n'));
    assert.equal(withoutB.endingStreams, 1);
    await b.untilEnd();
    assert.ok(b.complete, 'the stream ended in good order');
    const withoutAnonymous = await gateway.reload(site({ a: KEYS.a }, ''));
    assert.equal(withoutAnonymous.endingStreams, 1);
    await anonymous.untilEnd();
    assert.equal(a.ended, false);
    const otherKey = await gateway.reload(site({ a: KEYS.b }, ''));
    assert.equal(otherKey.endingStreams, 1);
    await a.untilEnd();
  });
});

describe('a hub that a reload moves to another path', () => {
  it('sends no more private updates to its open streams, whose key may be gone as well', async (test) => {
    const path = join(await temporaryDirectory(test), 'history');
    const port = await freePort();
    const site = (at: string, key: string): string => `http://localhost:${port} {
	hub ${at} {
		issuer a {
			publisher {
				jwt "${key}"
			}
			subscriber {
				jwt "${key}"
			}
		}
		transport lmdb {
			path ${path}
		}
	}
}
`;
    const origin = `http://localhost:${port}`;
    const tokenFor = (at: string, key: string) =>
      signToken(key, {
        ...{ iss: 'a', aud: origin + at },
        authorization_details: ['subscribe', 'publish'].map((action) => ({
          ...{ type: 'urn:hub:authorization-detail', actions: [action] },
          topics: [{ match: '*' }],
        })),
      });
    const { reload } = await startLibraryGateway(test, site('/old', KEYS.a));
    const headers = [['Authorization', `Bearer ${await tokenFor('/old', KEYS.a)}`] as const];
    const stream = await openStream(test, `${origin}/old?match=t`, { headers });
    const publish = async (at: string, key: string, body: string): Promise<void> => {
      const fields = [FORM, ['Authorization', `Bearer ${await tokenFor(at, key)}`] as const];
      const { status } = await send(origin + at, { method: 'POST', headers: fields, body });
      assert.equal(status, 200);
    };
    await publish('/old', KEYS.a, 'topic=t&id=1&private=on');
    await stream.until(({ text }) => text.includes('id: 1'));
    await reload(site('/new', KEYS.b));
    await publish('/new', KEYS.b, 'topic=t&id=2&private=on');
    await stream.untilEnd();
    assert.ok(!stream.text.includes('id: 2'), stream.text);
  });
});

describe('two hubs that share a history', () => {
  it('admit whoever one of them admits, and end the streams that neither does', async (test) => {
    const path = join(await temporaryDirectory(test), 'history');
    const [first, second] = [await freePort(), await freePort()];
    const site = (
      port: number,
      issuer: 'a' | 'b',
      more: string,
    ): string => `http://localhost:${port} {
	hub {
		issuer ${issuer} {
			publisher {
				jwt "${KEYS[issuer]}"
			}
			subscriber {
				jwt "${KEYS[issuer]}"
			}
		}
		transport lmdb {
			path ${path}
			shared
		}
		${more}
	}
	respond "a page"
}
`;
    const both = (ofFirst: string, ofSecond: string): string =>
      site(first, 'a', ofFirst) + site(second, 'b', ofSecond);
    const gateway = await startLibraryGateway(test, both('anonymous', ''));
    const open = async (port: number, issuer?: 'a' | 'b') => {
      const hub = `http://localhost:${port}/.well-known/hub`;
      const token = issuer && (await signToken(KEYS[issuer], { iss: issuer, aud: hub }));
      const headers = token === undefined ? [] : [['Authorization', `Bearer ${token}`] as const];
      return openStream(test, `${hub}?match=t`, { headers });
    };
    const [anonymous, a, b] = [await open(first), await open(first, 'a'), await open(second, 'b')];
    assert.deepEqual([anonymous.status, a.status, b.status], [200, 200, 200]);
    assert.equal((await open(second)).status, 401);

    const unconcerned = both('anonymous\n\t\theartbeat 20s', '');
    assert.deepEqual((await gateway.dryRun(unconcerned)).streams, []);
    assert.equal((await gateway.reload(unconcerned)).endingStreams, 0);

    const withoutAnonymous = both('', '');
    assert.deepEqual((await gateway.dryRun(withoutAnonymous)).streams, [
      {
        hub: `http://localhost:${first}, http://localhost:${second}`,
        count: 1,
        why: 'anonymous access is no longer configured',
      },
    ]);
    assert.equal((await gateway.reload(withoutAnonymous)).endingStreams, 1);
    await anonymous.untilEnd();
    assert.equal((await gateway.reload(site(second, 'b', ''))).endingStreams, 1);
    await a.untilEnd();
    assert.equal(b.ended, false);
  });
});

describe('an update whose body arrives late', () => {
  it('is refused if its key was removed or its token revoked in the meantime', async (test) => {
    const port = await freePort();
    const site = (issuers: readonly ('a' | 'b')[]): string => `http://localhost:${port} {
	hub {
${issuers.map((id) => `\t\tissuer ${id} {\n\t\t\tpublisher {\n\t\t\t\tjwt "${KEYS[id]}"\n\t\t\t}\n\t\t}\n`).join('')}		anonymous
		transport memory
	}
}
`;
    const { gateway, reload } = await startLibraryGateway(test, site(['a', 'b']));
    const hub = `http://localhost:${port}/.well-known/hub`;
    const details = { type: 'urn:hub:authorization-detail', actions: ['publish'] };
    const publishing = async (issuer: 'a' | 'b') => {
      const token = await signToken(KEYS[issuer], {
        ...{ iss: issuer, aud: hub, jti: `token of ${issuer}` },
        authorization_details: [{ ...details, topics: [{ match: '*' }] }],
      });
      const headers = [FORM, ['Authorization', `Bearer ${token}`] as const];
      return (id: string, beforeBody?: () => unknown) =>
        send(hub, {
          ...{ method: 'POST', headers, body: `topic=t&id=${id}` },
          ...(beforeBody === undefined ? {} : { beforeBody }),
        });
    };
    const [a, b] = [await publishing('a'), await publishing('b')];
    const unconcerned = await a('1', () => reload(`${site(['a', 'b'])}# changed`));
    assert.equal(unconcerned.status, 200, unconcerned.body);
    const revoked = await a('2', () => gateway.revoke('token of a', 'here'));
    assert.equal(revoked.status, 401);
    assert.equal((await b('3')).status, 200);
    const removed = await b('4', () => reload(site(['a'])));
    assert.equal(removed.status, 401);
    assert.match(removed.headers['www-authenticate'] ?? '', /error="invalid_token"/);
    const stream = await openStream(test, `${hub}?match=t&last_event_id=earliest`);
    assert.deepEqual(await stream.untilId('3'), ['1', '3']);
  });
});

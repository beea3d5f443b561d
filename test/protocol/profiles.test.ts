import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { profiles } from '../../src/hub/profile.ts';
import { openStream } from '../support/http.ts';
import { FORM, type Header, startHub } from '../support/hub-server.ts';

/** The wire names of each profile, spelled out: they are promises, not implementation. */
const NAMES = {
  hub: {
    path: '/.well-known/hub',
    cookie: '__Secure-hub_access_token',
    cursorHeader: 'hub-last-event-id',
    reserved: 'hub',
    detailType: 'urn:hub:authorization-detail',
    relation: 'hub',
    legacyClaim: 'hub',
    legacyCookie: 'hubAuthorization',
  },
  mercure: {
    path: '/.well-known/mercure',
    cookie: '__Secure-mercure_access_token',
    cursorHeader: 'mercure-last-event-id',
    reserved: 'mercure',
    detailType: 'https://mercure.rocks/authorization-detail',
    relation: 'mercure',
    legacyClaim: 'mercure',
    legacyCookie: 'mercureAuthorization',
  },
} as const;

for (const name of ['hub', 'mercure'] as const) {
  describe(`profile ${name}: one table of names (L1)`, async () => {
    const names = NAMES[name];
    const hub = await startHub(
      { after },
      { profile: name, subscriptions: true, publishOrigins: ['*'], corsOrigins: ['*'] },
    );
    const META = `/.well-known/oauth-protected-resource${names.path}`;
    const cookie = ([, value]: Header): Header => [
      'Cookie',
      `${names.cookie}=${value.slice('Bearer '.length)}`,
    ];

    it('A-1 B-108: publishes and subscribes under its path, with header and cookie', async (test) => {
      assert.equal(hub.url, hub.origin + names.path);
      const headers = [cookie(await hub.subscriber('urn:private'))];
      const stream = await openStream(test, `${hub.url}?match=urn:private`, { headers });
      assert.equal((await hub.post('topic=urn:private&private=on&id=1')).status, 200);
      const origin: Header = ['Origin', 'https://a.example'];
      const byCookie = [FORM, cookie(await hub.publisher()), origin];
      const answer = await hub.post('topic=urn:private&private=on&id=2', {
        headers: byCookie,
      });
      assert.equal(answer.body, '2');
      assert.deepEqual(await stream.untilId('2'), ['1', '2']);
    });

    it('B-184 B-185 B-214: uses its own name for the cursor header', async (test) => {
      await hub.post('topic=urn:cursor&id=c1');
      await hub.post('topic=urn:cursor&id=c2');
      const headers = [['Origin', 'https://a.example'] as const];
      const url = `${hub.url}?match=urn:cursor&last_event_id=c1`;
      const stream = await openStream(test, url, { headers });
      assert.equal(stream.headers[names.cursorHeader], 'c1');
      assert.ok(
        stream.headers['access-control-expose-headers']?.toLowerCase().includes(names.cursorHeader),
      );
      assert.deepEqual(await stream.untilId('c2'), ['c2']);
    });

    it('A-38 A-83: reserves its own path and event name, but not those of the other profile', async () => {
      const other = NAMES[name === 'hub' ? 'mercure' : 'hub'];
      for (const form of [`topic=${names.path}/x`, `topic=a&type=${names.reserved}`]) {
        assert.equal((await hub.post(form)).status, 400);
      }
      for (const form of [`topic=${other.path}/x`, `topic=a&type=${other.reserved}`]) {
        assert.equal((await hub.post(form)).status, 200);
      }
    });

    it('E-350 E-356 E-366 E-384: reports the active subscriptions', async (test) => {
      const headers = [await hub.subscriber('*')];
      const pattern = encodeURIComponent(`${names.path}/subscriptions/*`);
      const url = `${hub.url}?match_urlpattern=${pattern}`;
      const watcher = await openStream(test, url, { headers });
      await openStream(test, `${hub.url}?match=urn:seen`);
      await watcher.until(({ text }) => /"match":"urn:seen".*\n\n/.test(text));
      assert.match(
        watcher.text,
        new RegExp(`\n?event: ${names.reserved}\nid: .*\ndata: \\{"id":"${names.path}/`),
      );
      const answer = await hub.get(`${names.path}/subscriptions`, { headers });
      assert.equal(JSON.parse(answer.body).id, `${names.path}/subscriptions`);
      const link = String(answer.headers.link);
      assert.ok(link.startsWith(`<${names.path}>; rel="${names.relation}"; last-event-id="`), link);
      assert.ok(link.includes(`type="${names.reserved}"`), link);
    });

    it('F-397 F-400 F-402 F-410: serves its metadata and links to it', async () => {
      const { body } = await hub.get(META);
      assert.deepEqual(JSON.parse(body), {
        resource: hub.url,
        bearer_methods_supported: ['header'],
        authorization_details_types_supported: [names.detailType],
        [`${name}_cookie`]: names.cookie,
        [`${name}_subscriptions`]: true,
      });
      const refused = await hub.post('topic=a', { headers: [FORM] });
      assert.equal(
        refused.headers['www-authenticate'],
        `Bearer resource_metadata="${hub.origin}${META}"`,
      );
    });

    it('uses its own names for the 0.x claim and cookie (J)', () => {
      assert.equal(profiles[name].legacyClaim, names.legacyClaim);
      assert.equal(profiles[name].legacyCookieName, names.legacyCookie);
    });
  });
}

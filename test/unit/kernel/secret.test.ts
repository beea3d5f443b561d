import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readGiven } from '../../../src/config/program-data.ts';
import { secret } from '../../../src/config/shape-values.ts';
import { isSecretName, Secret, withoutSecretParts } from '../../../src/kernel/secret.ts';

const shown = (text: string): string => withoutSecretParts(text, '*');

describe('a text without its secret parts', () => {
  for (const [text, expected] of [
    ['/a?access_token=S&b=1', '/a?access_token=*&b=1'],
    ['access_token=S&b=1', 'access_token=*&b=1'],
    ['asked for token=S', 'asked for token=*'],
    ['q=access_token=S', 'q=access_token=*'],
    ['(code=S', '(code=*'],
    ['ACCESS%5FTOKEN=S', 'ACCESS%5FTOKEN=*'],
    ['/a?next=/cb?id_token=S#x', '/a?next=/cb?id_token=*#x'],
    ['/a?next=/cb%3Faccess_token%3DS%26b%3D1&c=2', '/a?next=/cb%3Faccess_token%3D*&c=2'],
    [
      '/a?n=%252Fcb%253Faccess%25255Ftoken%253DS&c=2',
      '/a?n=%252Fcb%253Faccess%25255Ftoken%253D*&c=2',
    ],
    ['token="S"; a=b', 'token="*"; a=b'],
    ['/x;token=S?y', '/x;token=*'],
    ['https://user:S@a.example/', 'https://*@a.example/'],
    ['https://user:S@S@a.example/', 'https://*@a.example/'],
    ['/a?next=http%3A%2F%2Fuser%3AS%40a.example%2F', '/a?next=http%3A%2F%2F*%40a.example%2F'],
    ['/a?n=x%253A%252F%252Fuser:S%2540a.example', '/a?n=x%253A%252F%252F*%2540a.example'],
    ['Bearer SSSSSSSS, x', 'Bearer *, x'],
    ['authorization=Bearer SSSSSSSS', 'authorization=* *'],
    ['/?h=bearer%20SSSSSSSS', '/?h=bearer%20*'],
    ['DPoP SSSSSSSS==', 'DPoP *'],
    ['Basic dXNlcjpwYXNz', 'Basic *'],
    ['basic+dXNlcjpwYXM%3D&b=1', 'basic+*&b=1'],
    ['/a?Authorization[]=S', '/a?Authorization[]=*'],
    ['/a?user%5Bjwt%5D=S&b=1', '/a?user%5Bjwt%5D=*&b=1'],
    ['bearer, eyJhbGciOiJ9.eyJpc3MiOiJ9.c2ln', 'bearer, *'],
    ['Cf-Access: eyJhbGciOiJ9.eyJpc3MiOiJ9.c2ln,x', 'Cf-Access: *,x'],
    ['/eyJhbGciOiJ9.a2V5.aXY.dGV4dA.dGFn/x', '/*/x'],
  ] as const) {
    it(`hides the secret of ${text}`, () => assert.equal(shown(text), expected));
  }

  for (const text of [
    '/a?page=2&postcode=12345',
    'error_code=4',
    'token=&b=1',
    'Bearer realm="api", error="invalid_token"',
    '/?q=Basic+training',
    'a bearer of news',
    'eyJhbGciOiJ9',
    '/a?authorizations=2',
    '==%3D',
    'https://a.example/@user?x=a@b.example',
    '/?to=http%3A%2F%2Fa.example%2Fmail%40b.example',
  ]) {
    it(`leaves ${text} as it is`, () => assert.equal(shown(text), text));
  }

  it('reads a long text with many signs', () => {
    const long = [
      'a=',
      'Bearer+',
      '%25',
      '?',
      'token',
      '%253',
      '://',
      '%3A%2F%2F',
      '@',
      'eyJ',
      'eyJaaaa.',
      'eyJ-',
    ].map((part) => part.repeat(20_000));
    for (const text of long) assert.equal(shown(`${text}=x`).length > 0, true);
  });
});

describe('the name of a secret', () => {
  it('may have a prefix', () => {
    for (const name of ['Authorization', 'X-Forwarded-Authorization', 'Set-Cookie', 'X-Cookie']) {
      assert.ok(isSecretName(name), name);
    }
    for (const name of ['Authorizations', 'cookies-accepted', 'Accept']) {
      assert.ok(!isSecretName(name), name);
    }
  });
});

describe('a secret of another copy of the package', () => {
  it('is a secret here too, and what only looks like one is not', async () => {
    const address = new URL('../../../src/kernel/secret.ts?other-copy', import.meta.url).href;
    const other: { readonly Secret: typeof Secret } = await import(address);
    assert.notEqual(other.Secret, Secret);
    const foreign = new other.Secret('0123456789abcdef');
    assert.ok(foreign instanceof Secret);
    assert.equal(readGiven(foreign, secret).reveal(), '0123456789abcdef');
    for (const value of [null, 'secret', { reveal: () => 'x' }]) {
      assert.ok(!((value as unknown) instanceof Secret));
    }
  });
});

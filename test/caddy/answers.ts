// Compares what both programs answer, without what each of them says in its own way.

import assert from 'node:assert/strict';
import type { Answer } from '../support/http.ts';
import type { ComparedCase, ComparedRequest } from './cases.ts';
import type { Served } from './programs.ts';

/** What every program says in its own way. */
const OWN = new Set([
  'accept-ranges',
  'connection',
  'content-length',
  'date',
  'etag',
  'keep-alive',
  'last-modified',
  'server',
  'transfer-encoding',
  'via',
]);

/** What hubgate's own page of an error has. */
const OF_PAGE = new Set([
  'content-security-policy',
  'content-type',
  'vary',
  'x-content-type-options',
  'x-request-id',
]);

/** Where a redirect leads, also where it is relative. */
function resolved(name: string, value: string, target: string): string {
  if (name !== 'location') return value;
  const { href, origin } = new URL(value, `http://own.test${target}`);
  return origin === 'http://own.test' ? href.slice(origin.length) : value;
}

/** Whether it is hubgate's page of an error. */
function isOwnPage({ status, headers }: Answer): boolean {
  return status >= 400 && headers['x-request-id'] !== undefined;
}

/** A field as clients understand it: each member of `Vary` counts once. */
function valueOf(name: string, value: string, target: string): string {
  if (name === 'vary') return [...new Set(value.split(/, ?/))].join(', ');
  return resolved(name, value, target);
}

/** An answer without what is every program's own; hubgate has pages where Caddy's errors are empty. */
function shown(
  { status, headers, body }: Answer,
  port: number,
  target: string,
  isPlainError: boolean,
): string {
  // Not shown by any client: a redirect has a link in it, an encoded body depends on its encoder.
  const isRedirect = status >= 300 && status < 400;
  const hasBody = !isPlainError && !isRedirect && headers['content-encoding'] === undefined;
  const fields = Object.entries(headers)
    .filter(([name]) => !OWN.has(name) && !(isPlainError && OF_PAGE.has(name)))
    .filter(([name]) => !isRedirect || name !== 'content-type')
    .map(([name, value]) => `${name}: ${valueOf(name, String(value), target)}`)
    .filter((field) => field !== 'vary: Accept-Encoding' || 'content-encoding' in headers)
    .sort();
  const all = [String(status), ...fields, ...(hasBody ? ['', body] : [])];
  return all
    .join('\n')
    .replaceAll(new RegExp(`\\b${port}\\b`, 'g'), 'PORT')
    .trimEnd();
}

/** Sends the requests of a case to both programs. */
export async function compare(
  one: ComparedCase,
  gateway: Served,
  caddy: Served,
  requests: readonly ComparedRequest[] = one.requests,
): Promise<void> {
  const differences: string[] = [];
  for (const request of requests) {
    const [own, its] = await Promise.all([gateway.ask(one, request), caddy.ask(one, request)]);
    const isPlainError = isOwnPage(own);
    const [actual, expected] = [
      shown(own, gateway.port, request.target, isPlainError),
      shown(its, caddy.port, request.target, isPlainError && its.body === ''),
    ];
    if (actual === expected) continue;
    const label = `${request.line}\n--- Caddy\n${expected}\n--- hubgate\n${actual}\n`;
    differences.push(label);
  }
  const { verdict } = one;
  if (verdict.kind === 'different') {
    assert.notEqual(differences.length, 0, 'nothing differs any more');
  } else {
    assert.equal(differences.length, 0, `\n${one.text}${differences.join('\n')}`);
  }
}

import type { Exchange } from '../http/exchange.ts';

/** Whatever a placeholder brought in, the target stays one that can stand in a request line: without `#` too. */
export function setTarget(exchange: Exchange, target: string): void {
  exchange.target = wellFormedTarget(target);
}

export function wellFormedTarget(target: string): string {
  const rooted = target.startsWith('/') ? target : `/${target}`;
  return rooted.replace(/[^!-~]|#/gu, percentEncoded);
}

function percentEncoded(letter: string): string {
  return Buffer.from(letter, 'utf8').toString('hex').toUpperCase().replace(/../g, '%$&');
}

import { answer } from '../http/answer.ts';
import type { SiteHandler } from '../site/site.ts';
import type { Challenges } from '../tls/acme/challenges.ts';

const PATH = /^\/\.well-known\/acme-challenge\/([A-Za-z0-9_-]+)$/;

/**
 * Answers HTTP-01 challenges (RFC 8555 §8.3) before anything else of a listener does. What is none
 * of ours goes on: an app behind may get certificates of its own.
 */
export function answerChallenges(handle: SiteHandler, challenges: Challenges): SiteHandler {
  return async (exchange) => {
    const { method, originalTarget } = exchange;
    const token =
      method === 'GET' || method === 'HEAD' ? PATH.exec(originalTarget)?.[1] : undefined;
    const found = token === undefined ? null : await challenges.keyAuthorization(token);
    if (found === null) return handle(exchange);
    return answer(exchange, 200, { 'content-type': 'application/octet-stream' }, found);
  };
}

import type { HandlerConfig, RouteConfig } from '../config/routes.ts';

/** Handlers that respond to every request that reaches them, unless their options say otherwise. */
const ANSWERING: readonly HandlerConfig['kind'][] = [
  'reverse_proxy',
  'file_server',
  'respond',
  'error',
  'abort',
  'redir',
];

/** Whether a handler is one of those that respond. */
export function isAnswering({ kind }: HandlerConfig): boolean {
  return ANSWERING.includes(kind);
}

/** Whether a handler responds to every request, so that no handler after it runs. */
export function answersAll(handler: HandlerConfig): boolean {
  if (handler.kind === 'file_server') return !handler.passThru;
  if (handler.kind === 'reverse_proxy') {
    return handler.handleResponse.every(
      ({ replaceStatus, routes }) => replaceStatus !== null || someAnswersAll(routes),
    );
  }
  return isAnswering(handler);
}

/** Whether some route responds to every request; `copy_response` responds where it has a response. */
export function someAnswersAll(routes: readonly RouteConfig[]): boolean {
  return routes.some(
    ({ matcher, handler }) =>
      matcher === null && (handler.kind === 'copy_response' || answersAll(handler)),
  );
}

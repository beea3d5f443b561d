import type { Directive } from './scope.ts';

/**
 * The order in which directives run whatever their order in the file: first those that describe the
 * site and add no step, then as in a Caddyfile. What hubgate does not have is in it too, so that a
 * directive which is added finds its place; one that Caddy does not have says after which it runs.
 */
const RUNNING_ORDER: readonly string[] = [
  'bind',
  'tls',
  'log',
  'discovery',
  'handle_errors',

  'tracing',
  'map',
  'vars',
  'root',
  'log_append',
  'log_skip',
  'log_name',
  'header',
  'copy_response_headers',
  'request_body',
  'redir',
  'method',
  'rewrite',
  'uri',
  'try_files',
  'basic_auth',
  'forward_auth',
  'request_header',
  'encode',
  'push',
  'intercept',
  'templates',
  'invoke',
  'handle',
  'route',
  'abort',
  'error',
  'copy_response',
  'respond',
  'metrics',
  'reverse_proxy',
  'php_fastcgi',
  'file_server',
  'acme_server',
];

/** The directives of a table in the order in which they run; those that share a place are together. */
export function directiveOrder(
  directives: Readonly<Record<string, Directive>>,
): readonly (readonly string[])[] {
  const places = RUNNING_ORDER.map((name) => [name]);
  let waiting = Object.entries(directives).filter(([name]) => !RUNNING_ORDER.includes(name));
  // One may run after another that has no place of Caddy's either.
  for (let left = -1; waiting.length !== left; ) {
    left = waiting.length;
    waiting = waiting.filter(([name, { after, besides }]) => {
      const at = places.findIndex((place) => place.includes(besides ?? after ?? ''));
      if (at === -1) return true;
      if (besides === undefined) places.splice(at + 1, 0, [name]);
      else places[at]?.push(name);
      return false;
    });
  }
  return places
    .map((place) => place.filter((name) => Object.hasOwn(directives, name)))
    .filter((place) => place.length > 0);
}

import type { BindAddress } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import type {
  ConditionData,
  ConfigRegistry,
  HandlerConfig,
  HandlerData,
  MatchCondition,
} from '../config/routes.ts';
import type { ConditionSyntax, DirectiveSyntax } from './scope.ts';
import { unsupportedDirectives } from './unsupported.ts';

/** The parts of the registry of directives and matchers that the reader of a Hubfile needs. */
export interface SyntaxRegistry extends ConfigRegistry {
  readonly directives: Readonly<
    Record<string, { readonly syntax: DirectiveSyntax; readonly data?: HandlerData<HandlerConfig> }>
  >;
  readonly matchers: Readonly<
    Record<
      string,
      {
        readonly syntax: ConditionSyntax<MatchCondition>;
        readonly data: ConditionData<MatchCondition>;
      }
    >
  >;
}

/** Directives in the order of execution; names with the same position are grouped. */
export type DirectivePlaces = readonly (readonly string[])[];

/** What the options say of how sites are read; it is in the sites then, not in the configuration. */
export interface SiteDefaults {
  /** In which order directives run. */
  readonly places: DirectivePlaces;
  /** Where a site listens that has no `bind`. */
  readonly bind: readonly BindAddress[];
}

/** The directives of a Hubfile, by name and in the order of execution. */
export class DirectiveTable {
  readonly registry: SyntaxRegistry;
  /** The order of directives, unless the global option `order` changes it. */
  readonly places: DirectivePlaces;
  readonly #syntaxes: ReadonlyMap<string, DirectiveSyntax>;
  readonly #oldNames: ReadonlyMap<string, string>;

  constructor(registry: SyntaxRegistry) {
    const syntaxes = Object.entries(registry.directives).map(
      ([name, { syntax }]) => [name, syntax] as const,
    );
    this.registry = registry;
    this.places = directiveOrder(Object.fromEntries(syntaxes));
    this.#syntaxes = new Map(syntaxes);
    this.#oldNames = new Map(
      syntaxes.flatMap(([name, { oldNames = [] }]) => oldNames.map((old) => [old, name] as const)),
    );
  }

  /** The present name of a directive. */
  currentName(name: string): string {
    return this.#oldNames.get(name) ?? name;
  }

  /** The directive with this present or old name. */
  find(name: string): DirectiveSyntax | undefined {
    return this.#syntaxes.get(name);
  }

  /** Whether this is the present or an old name of a directive, or one of Caddy's that is not supported. */
  isDirective(name: string): boolean {
    return this.#syntaxes.has(this.currentName(name)) || Object.hasOwn(unsupportedDirectives, name);
  }

  /** The directive with the name that is most similar to an unknown word. */
  nearest(word: string): string | undefined {
    return nearestName(word, [...this.#syntaxes.keys()]);
  }
}

/**
 * The order in which directives run, whatever their order in the file. First come those that describe the
 * site and add no step; the others follow Caddy's order. The list includes directives that hubgate does not
 * have, so that a new one has its position. A directive that Caddy does not have declares after which one it
 * runs.
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

/** The directives of a table in the order of execution; those with the same position are grouped. */
export function directiveOrder(
  directives: Readonly<Record<string, DirectiveSyntax>>,
): DirectivePlaces {
  const places = RUNNING_ORDER.map((name) => [name]);
  let waiting = Object.entries(directives).filter(([name]) => !RUNNING_ORDER.includes(name));
  // A directive may run after another one that has no position in Caddy's order either.
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

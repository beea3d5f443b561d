import type { Report } from './problem.ts';
import type { Shape } from './shape.ts';

/** One step of a site: the requests that it applies to, and what it does with them. */
export interface RouteConfig {
  /** null: every request. */
  readonly matcher: RequestMatcher | null;
  readonly handler: HandlerConfig;
}

/** All conditions of a matcher must hold. Within one condition, one of its values is enough. */
export type RequestMatcher = readonly MatchCondition[];

/** The configuration of each handler, by its `kind`. It is empty here: the registry of directives fills it. */
// oxlint-disable-next-line typescript/no-empty-interface typescript/no-empty-object-type
export interface HandlerKinds {}

/**
 * The configuration of each condition of a matcher, by its `kind`. The registry of matchers fills it.
 *
 * @public because a declaration in another module extends it
 */
// oxlint-disable-next-line typescript/no-empty-interface typescript/no-empty-object-type
export interface ConditionKinds {}

export type HandlerConfig = HandlerKinds[keyof HandlerKinds];

export type MatchCondition = ConditionKinds[keyof ConditionKinds];

/** One line of `header`, `request_header`, `header_up` or `header_down`. */
export type HeaderOperation =
  | { readonly kind: 'set' | 'add' | 'default'; readonly name: string; readonly value: string }
  /** `name` may begin or end with `*`. */
  | { readonly kind: 'delete'; readonly name: string }
  | {
      readonly kind: 'replace';
      readonly name: string;
      /** RE2 syntax. */
      readonly pattern: string;
      readonly replacement: string;
    };

/**
 * Everything that the rest of the program needs to know about the configuration of a handler, without knowing
 * its kind. A method that is missing means "none".
 */
export interface HandlerData<Handler extends { readonly kind: string }> {
  /** Its members except `kind`, for YAML, JSON and workers; `inner` is the shape of routes in it, `matcher` of matchers. */
  shape(
    inner: Shape<readonly RouteConfig[]>,
    matcher: Shape<RequestMatcher>,
  ): Shape<Omit<Handler, 'kind'>>;
  /** Routes that a request passes through at the position of the handler. */
  nested?(handler: Handler): readonly RouteConfig[];
  /** Routes that replace a response that the handler has received. */
  answering?(handler: Handler): readonly RouteConfig[];
  /**
   * Whether it responds to every request that reaches it, so that no handler after it runs. Missing: it usually leaves
   * requests to them.
   *
   * @param someAnswersAll asked about routes inside it
   */
  answersAll?(
    handler: Handler,
    someAnswersAll: (routes: readonly RouteConfig[]) => boolean,
  ): boolean;
  /** Of the handlers of one kind side by side with one group, only the first that matches runs. */
  group?(handler: Handler): number | null;
  /** Parts with a `pattern` in RE2 syntax. The place in the file is known for each part. */
  patterns?(handler: Handler): readonly object[];
  /** Changes of the response's fields that happen before discovery sees them. */
  responseFields?(handler: Handler): readonly HeaderOperation[];
  /**
   * Files that are read while the gateway is built. A change of such a file is a change of the configuration.
   */
  files?(handler: Handler): readonly ReadFile[];
  /** The upstreams that it forwards requests to, each with the part that names it. */
  upstreams?(handler: Handler): readonly { readonly about: object; readonly upstream: string }[];
  /** The facts of an exchange's identity that it establishes: request fields, and the user. */
  establishes?(handler: Handler): { readonly fields: readonly string[]; readonly user: boolean };
  /** Further request fields with which it passes the established identity to the app. */
  writesIdentity?(handler: Handler): readonly string[];
  /** Whether the path or the host of a request may be another one for the handlers after it. */
  retargets?(handler: Handler): boolean;
  /** Whether it limits something exactly that each process counts for itself. */
  countsHere?(handler: Handler): boolean;
  /** Whether requests that pass through it have credentials. */
  readonly identifies?: true;
  /** Checks everything that no single field can show. Placeholders are resolved; nothing is opened. */
  check?(handler: Handler, report: Report): void;
}

/** A file with certificates of authorities, as PEM, that a field of the configuration names. */
export interface ReadFile {
  readonly about: object;
  readonly field: string;
  readonly path: string;
}

/**
 * Everything that the rest of the program needs to know about the configuration of a condition. A member with
 * the name `pattern` is an RE2 expression, and is checked as such.
 */
export interface ConditionData<Condition extends { readonly kind: string }> {
  /** Its members except `kind`, for YAML, JSON and workers; `inner` is the shape of matchers in it. */
  shape(inner: Shape<RequestMatcher>): Shape<Omit<Condition, 'kind'>>;
  /** Whether it looks up files, so that its result is asynchronous. */
  readonly asksFiles?: true;
  /** Matchers inside it. */
  nested?(condition: Condition): readonly RequestMatcher[];
}

/** The parts of the registry of directives and matchers that a configuration needs, by their names. */
export interface ConfigRegistry {
  readonly directives: Readonly<Record<string, { readonly data?: HandlerData<HandlerConfig> }>>;
  readonly matchers: Readonly<Record<string, { readonly data: ConditionData<MatchCondition> }>>;
}

/** The data of the directive that a handler belongs to. */
export function dataOf(
  { kind }: HandlerConfig,
  { directives }: Pick<ConfigRegistry, 'directives'>,
): HandlerData<HandlerConfig> {
  const data = directives[kind]?.data;
  if (data === undefined) throw new TypeError(`no directive is registered for "${kind}"`);
  return data;
}

/** Whether a handler responds to every request, so that no handler after it runs. */
export function answersAll(
  handler: HandlerConfig,
  registry: Pick<ConfigRegistry, 'directives'>,
): boolean {
  const inside = (routes: readonly RouteConfig[]): boolean => someAnswersAll(routes, registry);
  return dataOf(handler, registry).answersAll?.(handler, inside) ?? false;
}

/** Whether some route responds to every request. */
export function someAnswersAll(
  routes: readonly RouteConfig[],
  registry: Pick<ConfigRegistry, 'directives'>,
): boolean {
  return routes.some(({ matcher, handler }) => matcher === null && answersAll(handler, registry));
}

/** A condition and all conditions inside it. */
export function everyCondition(
  matcher: RequestMatcher | null,
  registry: ConfigRegistry,
): MatchCondition[] {
  return (matcher ?? []).flatMap((condition) => [
    condition,
    ...(registry.matchers[condition.kind]?.data.nested?.(condition) ?? []).flatMap((inner) =>
      everyCondition(inner, registry),
    ),
  ]);
}

/** Whether a matcher has to wait for file look-ups. */
export function asksFiles(matcher: RequestMatcher, registry: ConfigRegistry): boolean {
  return everyCondition(matcher, registry).some(
    ({ kind }) => registry.matchers[kind]?.data.asksFiles === true,
  );
}

/** The given routes and all routes inside them, each before those inside it. */
export function everyRoute(
  routes: readonly RouteConfig[],
  registry: ConfigRegistry,
): RouteConfig[] {
  return routes.flatMap((route) => {
    const data = dataOf(route.handler, registry);
    const inside = [
      ...(data.nested?.(route.handler) ?? []),
      ...(data.answering?.(route.handler) ?? []),
    ];
    return [route, ...everyRoute(inside, registry)];
  });
}

/** The files that the handlers of the given routes read while the gateway is built. */
export function filesRead(routes: readonly RouteConfig[], registry: ConfigRegistry): ReadFile[] {
  return everyRoute(routes, registry).flatMap(
    ({ handler }) => dataOf(handler, registry).files?.(handler) ?? [],
  );
}

/**
 * All names of placeholders for what `basic_auth` and the client's certificate have established, and for the
 * response of another service.
 */
const IDENTITY =
  /\{(?:(?:http\.)?auth\.user\.id|tls_client_[^{}]+|http\.request\.tls\.client\.[^{}]+|rp\.header\.[^{}]+|http\.reverse_proxy\.header\.[^{}]+)\}/;

/** The request fields that operations fill with the user's identity as the gateway knows it. */
export function identityFieldsIn(operations: readonly HeaderOperation[]): string[] {
  return operations.flatMap((one) =>
    (one.kind === 'set' || one.kind === 'add' || one.kind === 'default') && IDENTITY.test(one.value)
      ? [one.name]
      : [],
  );
}

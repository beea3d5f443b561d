import type {
  ConfigRegistry,
  HandlerConfig,
  HeaderOperation,
  MatchCondition,
  RequestMatcher,
  RouteConfig,
} from './routes.ts';
import {
  byKind,
  defaultsOf,
  type KindShapes,
  later,
  list,
  nullable,
  object,
  type Of,
  optional,
  section,
  type Shape,
  withDefault,
} from './shape.ts';
import { headerName } from './shape-options.ts';
import { count, text } from './shape-values.ts';
import { isHeaderName, isHeaderValue, isStatusPattern } from './well-formed.ts';

/** The shapes of matchers and routes, composed of those in the registry. */
export function routeShapes({ directives, matchers }: ConfigRegistry): {
  /** null: every request. */
  readonly matcher: Shape<RequestMatcher | null>;
  /** The steps of a site, in the order of execution. */
  readonly routes: Shape<readonly RouteConfig[]>;
} {
  const conditions: Shape<RequestMatcher> = list(later('condition', () => condition));
  const conditionShapes = Object.entries(matchers).map(([kind, { data }]) => [
    kind,
    data.shape(conditions),
  ]);
  // Each entry provides the shape of its own kind, which the type of the entries does not express.
  const condition = byKind<MatchCondition>(
    Object.fromEntries(conditionShapes) as KindShapes<MatchCondition>,
  );
  const matcher = nullable(conditions);
  const routes: Shape<readonly RouteConfig[]> = list(
    object<RouteConfig>({
      matcher: withDefault(matcher, null),
      handler: later('handler', () => handler),
    }),
  );
  const handlerShapes = Object.entries(directives).flatMap(([kind, { data }]) =>
    data === undefined ? [] : [[kind, data.shape(routes, conditions)] as const],
  );
  // As above.
  const handler = byKind<HandlerConfig>(
    Object.fromEntries(handlerShapes) as KindShapes<HandlerConfig>,
  );
  return { matcher, routes };
}

export const headerValue = text('a value without line breaks', isHeaderValue);

export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

export const field: Shape<HeaderField> = object({ name: headerName, value: headerValue });

const headerOperation: Shape<HeaderOperation> = byKind<HeaderOperation>({
  set: field,
  add: field,
  default: field,
  delete: object({
    name: text(
      'the name of a header field; * may stand at either end',
      (pattern) => pattern === '*' || isHeaderName(pattern.replaceAll(/^\*|\*$/g, '')),
    ),
  }),
  replace: object({
    name: headerName,
    pattern: text('a regular expression'),
    replacement: headerValue,
  }),
});

/** Changes of header fields, at least one. */
export const headerOperations = list(headerOperation, { min: 1 });
/** The same, possibly without any change. */
export const anyHeaderOperations = list(headerOperation);

export const statusPatterns = list(text('a status such as 404 or 5xx', isStatusPattern));

const responseMatcherMembers = {
  /** Statuses such as 404, or classes such as 5xx. */
  status: withDefault(statusPatterns, []),
  /** Each named field must have one of the given values, which may begin or end with `*`. */
  headers: withDefault(list(field), []),
};

/** The responses to which a rule applies. An empty list matches every response. */
export interface ResponseMatcher extends Of<typeof responseMatcherMembers> {}

export const ANY_RESPONSE: ResponseMatcher = defaultsOf(responseMatcherMembers);

export const responseMatcher = section<ResponseMatcher>(responseMatcherMembers);

const responseRuleMembers = (routes: Shape<readonly RouteConfig[]>) => ({
  ...responseMatcherMembers,
  /** The status that replaces the one of the response; null: the routes respond instead. */
  replaceStatus: optional(count({ min: 200, max: 599 })),
  routes: withDefault(routes, []),
});

/** What happens to some responses, instead of passing them on. */
export interface ResponseRule extends Of<ReturnType<typeof responseRuleMembers>> {}

/** The shape of rules about responses. */
export function responseRulesShape(
  routes: Shape<readonly RouteConfig[]>,
): Shape<readonly ResponseRule[]> {
  return list(object(responseRuleMembers(routes)));
}

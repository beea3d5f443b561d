import { someAnswersAll } from '../config/routes.ts';
import { ANY_RESPONSE, type ResponseRule, responseRulesShape } from '../config/shape-routes.ts';
import { object } from '../config/shape.ts';
import { isStatusTemplate } from '../config/shape-values.ts';
import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { ResponseMatchers } from '../hubfile/named-matchers.ts';
import { type Scope, oneStep } from '../hubfile/scope.ts';
import { count } from '../hubfile/values.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler, ResponseHead } from '../http/exchange.ts';
import { DeferredBody } from '../http/deferred-body.ts';
import { replaceStatus, ResponseWatch } from '../http/exchange-response.ts';
import {
  compileResponseMatcher,
  OF_THE_BODY,
  staysAlone,
  withPreset,
  yieldSingle,
} from '../http/header-operations.ts';
import { fieldText } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface InterceptConfig {
  readonly kind: 'intercept';
  readonly handleResponse: readonly ResponseRule[];
}

const USAGE = `
intercept [<matcher>] {
    @name status <status…>
    @name header <field> [<value>]
    replace_status [@name] <status>
    handle_response [@name] { <directives…> }
}
`;

export const intercept: HandlerDirective<InterceptConfig> = {
  data: {
    shape: (routes) => object({ handleResponse: responseRulesShape(routes) }),
    answering: (handler) => handler.handleResponse.flatMap(({ routes }) => routes),
  },
  syntax: {
    usage: USAGE,
    summary: 'replaces responses of later directives, by status or header field',
    read: oneStep((cursor, scope) => {
      const responses = new ResponseMatchers();
      for (const line of cursor.line.block ?? []) responses.defineIfNamed(cursor, line);
      const start: Rules = { handleResponse: [] };
      const settings = cursor.options(start, responseRules(scope, responses), {
        repeatable: ['handle_response', 'replace_status'],
        other: (option) => option.name.startsWith('@'),
      });
      return { kind: 'intercept', ...settings };
    }),
  },
  compile,
};

/** Only the first rule that matches the response applies. */
function compile(
  config: InterceptConfig,
  { compileRoutes, registry, clock }: HandlerContext,
): Handler {
  const rules = config.handleResponse.map((one) => ({
    matches: compileResponseMatcher(one),
    status: one.replaceStatus,
    routes: compileRoutes(one.routes),
    alwaysAnswers: someAnswersAll(one.routes, registry),
  }));
  const ruleFor = ({ status, headers }: ResponseHead) =>
    rules.find(({ matches }) => matches(status, headers));
  return async (exchange, next) => {
    const taken: { routes: Handler; held: Held | null } = { routes: () => {}, held: null };
    let isReplaced = false;
    let onHeld = (): void => {};
    const hasHeld = new Promise<void>((resolve) => {
      onHeld = resolve;
    });
    const release = exchange.interceptHead((head) => {
      const rule = ruleFor(head);
      if (rule === undefined || taken.held !== null) return null;
      if (rule.status !== null) {
        replaceStatus(head, rule.status);
        return null;
      }
      taken.routes = rule.routes;
      moveFields(exchange, head);
      taken.held = hold(exchange, head);
      isReplaced = rule.alwaysAnswers;
      // The routes need not wait for the whole response, but for the handler, which may be reading the request.
      if (isReplaced) {
        noteReplaced(exchange, head.status);
        taken.held.body.drop(clock);
      } else onHeld();
      return taken.held.body;
    });
    const running = (async () => next())();
    try {
      await Promise.race([running, hasHeld]);
    } catch (error) {
      if (!isReplaced || exchange.abandoned) throw error;
    } finally {
      release();
    }
    const { routes, held } = taken;
    if (held === null) return;
    if (isReplaced) {
      await routes(exchange, () => {});
      return;
    }
    // What the routes throw decides first.
    running.catch(() => held.body.destroy());
    const sent = await answerOrSend(exchange, routes, held, clock);
    try {
      await running;
    } catch (error) {
      // If the routes have responded, it belongs to the response that they have replaced.
      if (sent !== 'other') throw error;
    }
    if (sent === 'none' && !exchange.abandoned) {
      throw new HttpError(502, 'the response that no route has replaced is incomplete');
    }
    // The handlers that could not know whether a response has begun have left the body whole. Routes further out may
    // still need it.
    const isUnderWay = sent === 'held' ? !held.body.isHeld : exchange.begun;
    if (isUnderWay && exchange.isBodyWhole) exchange.body.resume();
  };
}

/**
 * A response that is sent if the routes do not respond. Its body waits for them. If the handler that has begun it fails
 * or aborts it, the body is destroyed.
 */
interface Held {
  readonly status: number;
  readonly body: DeferredBody;
  readonly send: () => void;
}

/**
 * Makes the fields of a response preset fields: whatever responds instead also has them, and the routes can
 * change them. Those that `header` has set in front do not yield.
 */
function moveFields({ variables, preset }: Exchange, head: ResponseHead): void {
  const { headers, isBesidePreset } = head;
  const own = [...headers].map(([name]) => name.toLowerCase());
  const ofResponse = own.filter((key) => isBesidePreset !== true || !staysAlone(preset, key));
  withPreset(head, preset);
  variables.set('resp.status_code', String(head.status));
  for (const [name] of headers) {
    const value = fieldText(headers.getAll(name).join(','));
    variables.set(`resp.header.${name.toLowerCase()}`, value);
  }
  preset.deleteWhere((key) => headers.has(key) && !OF_THE_BODY.has(key));
  for (const [name, value] of headers) {
    if (!OF_THE_BODY.has(name.toLowerCase())) preset.append(name, value);
  }
  yieldSingle(preset, ofResponse);
}

function hold(exchange: Exchange, head: ResponseHead): Held {
  const { preset } = exchange;
  const body = new DeferredBody();
  body.hold();
  const before = preset.clone();
  const send = (): void => {
    const headers = head.headers.clone();
    headers.deleteWhere((key) => !OF_THE_BODY.has(key));
    // Fields of the body are those of the response unless the routes have set others.
    for (const key of OF_THE_BODY) {
      if (preset.combined(key) === before.combined(key)) preset.delete(key);
      else headers.delete(key);
    }
    const { isBesidePreset: _, ...rest } = head;
    body.decide(exchange.begin({ ...rest, headers }));
  };
  return { status: head.status, body, send };
}

/** The fields of the replaced response stay. Its status does not, so a cache would take what replaces an error for a good page. */
function noteReplaced(exchange: Exchange, status: number): void {
  if (status >= 400) exchange.dependsOn?.('client');
}

/** Returns which response has been sent: the held one, another one, or none. */
async function answerOrSend(
  exchange: Exchange,
  routes: Handler,
  { status, body, send }: Held,
  clock: Clock,
): Promise<'held' | 'other' | 'none'> {
  const watch = new ResponseWatch(exchange, () => noteReplaced(exchange, status));
  let isSent = false;
  try {
    await routes(exchange, () => {});
    if (exchange.begun || watch.hasBegun) return 'other';
    if (exchange.abandoned || body.destroyed) return 'none';
    watch.stop();
    send();
    isSent = true;
    return 'held';
  } finally {
    watch.stop();
    if (!isSent) body.drop(clock);
  }
}

type Rules = Pick<InterceptConfig, 'handleResponse'>;

/** The options for rules about responses, which `reverse_proxy` also has. */
export function responseRules(
  scope: Scope,
  responses: ResponseMatchers,
): Record<'handle_response' | 'replace_status', OptionTable<Rules>[string]> {
  return {
    handle_response: (option, { handleResponse: before }) => ({
      handleResponse: inOrder([...before, handleResponse(option, scope, responses)]),
    }),
    replace_status: (option, { handleResponse: before }) => ({
      handleResponse: inOrder([...before, readReplaceStatus(option, responses)]),
    }),
  };
}

/**
 * As in Caddy, wherever they stand: first those with a matcher, and of these first `replace_status`. One
 * without a matcher would otherwise hide the others.
 */
function inOrder(rules: readonly ResponseRule[]): readonly ResponseRule[] {
  const rank = ({ status, headers, replaceStatus: replaced }: ResponseRule): number =>
    (status.length + headers.length === 0 ? 2 : 0) + (replaced === null ? 1 : 0);
  return rules.toSorted((one, other) => rank(one) - rank(other));
}

/** `handle_response [@name] { <directives…> }` */
function handleResponse(cursor: Cursor, scope: Scope, responses: ResponseMatchers): ResponseRule {
  const matcher = responses.find(cursor);
  const routes = scope.routes(cursor.block(), 'documented');
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: null, routes });
}

/** `replace_status [@name] <status>` */
function readReplaceStatus(cursor: Cursor, responses: ResponseMatchers): ResponseRule {
  const matcher = cursor.left > 1 ? responses.find(cursor) : ANY_RESPONSE;
  const word = cursor.peek();
  if (word !== undefined && isStatusTemplate(word.text)) {
    const instead = 'in reverse_proxy, write handle_response with copy_response <status>';
    cursor.failUnsupported(word.span, 'replace_status with a placeholder', instead);
  }
  const status = count(cursor, { min: 200, max: 599 });
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: status, routes: [] });
}

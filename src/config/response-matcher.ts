import { list, object, type Shape } from './shape.ts';
import { field } from './shape-routes.ts';
import { text } from './shape-values.ts';
import { isStatusPattern } from './well-formed.ts';

/** The responses to which a rule applies. An empty list matches every response. */
export interface ResponseMatcher {
  /** Statuses such as 404, or classes such as 5xx. */
  readonly status: readonly string[];
  /** Each named field must have one of the given values, which may begin or end with `*`. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
}

export const ANY_RESPONSE: ResponseMatcher = { status: [], headers: [] };

export const statusPatterns = list(text('a status such as 404 or 5xx', isStatusPattern));

const members = { status: statusPatterns, headers: list(field) };

/** For shapes with further members. */
export const responseMatcherMembers = members;

export const responseMatcher: Shape<ResponseMatcher> = object(members, ANY_RESPONSE);

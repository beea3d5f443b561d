import { list, object, type Shape } from './shape.ts';
import { field } from './shape-routes.ts';
import { text } from './shape-values.ts';
import { isStatusPattern } from './well-formed.ts';

/** Which responses something is for; each part that is empty is for all. */
export interface ResponseMatcher {
  /** Statuses or classes. */
  readonly status: readonly string[];
  /** Each field that is named must have one of its values, in which `*` may begin or end. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
}

export const ANY_RESPONSE: ResponseMatcher = { status: [], headers: [] };

export const statusPatterns = list(text('a status such as 404 or 5xx', isStatusPattern));

const members = { status: statusPatterns, headers: list(field) };

/** For those that have further members. */
export const responseMatcherMembers = members;

export const responseMatcher: Shape<ResponseMatcher> = object(members, ANY_RESPONSE);

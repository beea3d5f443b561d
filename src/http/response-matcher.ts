import type { ResponseMatcher } from '../config/shape-routes.ts';
import { statusMatcher } from '../config/well-formed.ts';
import type { HeaderList } from './header-list.ts';
import { compileWildcard } from './linear-regexp.ts';

export function compileResponseMatcher({
  status,
  headers,
}: ResponseMatcher): (status: number, fields: HeaderList) => boolean {
  const hasStatus = statusMatcher(status);
  const names = [...new Set(headers.map(({ name }) => name.toLowerCase()))];
  const fields = names.map((name) => {
    const values = headers
      .filter((one) => one.name.toLowerCase() === name)
      .map(({ value }) => compileWildcard(value, 'edges'));
    return { name, matches: (value: string) => values.some((matches) => matches(value)) };
  });
  return (answered, list) =>
    hasStatus(answered) && fields.every(({ name, matches }) => list.getAll(name).some(matches));
}

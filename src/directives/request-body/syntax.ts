import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { size } from '../../hubfile/values.ts';

const USAGE = `
request_body [<matcher>] {
    max_size <size>
}
`;

export const requestBody: Directive = {
  usage: USAGE,
  summary: 'bounds the body of a request',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    cursor.block();
    const start: { maxSize: number | null } = { maxSize: null };
    const { maxSize } = cursor.options(start, {
      max_size: (option) => ({ maxSize: size(option) }),
    });
    cursor.end();
    if (maxSize === null) {
      return cursor.fail(cursor.span, 'missing-option', 'request_body needs max_size');
    }
    return [step(cursor, matcher, { kind: 'request_body', maxSize })];
  },
};

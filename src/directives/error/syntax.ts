import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { statusCode, text } from '../../hubfile/values.ts';

const BOUNDS = { min: 400, max: 599 };

const USAGE = `
error [<matcher>] <status>|<message> [<status>] {
    message <text>
}
`;

export const error: Directive = {
  usage: USAGE,
  summary: 'fails, so that `handle_errors` answers',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const first = cursor.argument('a status or a message');
    const second = cursor.optional();
    const start = { status: 500, message: '' };
    if (second === undefined && /^\d{3}$/.test(first.text)) {
      start.status = statusCode(cursor, first, BOUNDS);
    } else {
      start.message = first.text;
    }
    if (second !== undefined) start.status = statusCode(cursor, second, BOUNDS);
    const settings = cursor.options(start, {
      message: (option) => ({ message: text(option, 'a text') }),
    });
    cursor.end();
    return [step(cursor, matcher, { kind: 'error', ...settings })];
  },
};

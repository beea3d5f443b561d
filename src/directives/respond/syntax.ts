import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { flag, statusCode, text } from '../../hubfile/values.ts';

const USAGE = `
respond [<matcher>] <status>|<body> [<status>] {
    body <text>
    close
}
`;

export const respond: Directive = {
  usage: USAGE,
  summary: 'answers with a fixed text',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const first = cursor.optional();
    const second = cursor.optional();
    const start: { status: number | null; body: string; close: boolean } = {
      status: null,
      body: '',
      close: false,
    };
    if (first !== undefined && second === undefined && /^\d{3}$/.test(first.text)) {
      start.status = statusCode(cursor, first);
    } else if (first !== undefined) {
      start.body = first.text;
    }
    if (second !== undefined) start.status = statusCode(cursor, second);
    const settings = cursor.options(start, {
      body: (option) => ({ body: text(option, 'a text') }),
      close: () => ({ close: flag() }),
    });
    cursor.end();
    return [step(cursor, matcher, { kind: 'respond', ...settings })];
  },
};

import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { duration, size } from '../../hubfile/values.ts';
import { defaultRequestBody, type RequestBodyConfig } from './data.ts';

const USAGE = `
request_body [<matcher>] {
    max_size <size>
    read_timeout <duration>
    write_timeout <duration>
}
`;

export const requestBody: Directive = {
  usage: USAGE,
  summary: 'bounds the body of a request, and how long it and the answer may take',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    if (cursor.block().length === 0) {
      const hint = 'max_size 10MiB, read_timeout 30s or write_timeout 1m';
      cursor.fail(cursor.span, 'missing-option', 'request_body needs a limit', hint);
    }
    const start: RequestBodyConfig = { kind: 'request_body', ...defaultRequestBody };
    const limits = cursor.options(
      start,
      {
        max_size: (option) => ({ maxSize: size(option) }),
        read_timeout: (option) => ({ readTimeoutMs: duration(option) }),
        write_timeout: (option) => ({ writeTimeoutMs: duration(option) }),
      },
      { unsupported: { set: 'hubgate passes bodies on as they come; let the app change them' } },
    );
    cursor.end();
    return [step(cursor, matcher, limits)];
  },
};

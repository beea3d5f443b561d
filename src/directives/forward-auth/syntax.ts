import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import type { Span } from '../../hubfile/place.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { headerName, name } from '../../hubfile/values.ts';
import { proxySettings } from '../reverse-proxy/syntax.ts';

type CopiedHeader = { readonly from: string; readonly to: string };

const USAGE = `
forward_auth [<matcher>] <upstream…> {
    uri <uri>
    copy_headers <field[>field]…>
    <options of reverse_proxy…>
}
`;

export const forwardAuth: Directive = {
  usage: USAGE,
  summary: 'asks another service whether a request may pass',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    let uri: string | null = null;
    let uriSpan: Span | null = null;
    const copyHeaders: CopiedHeader[] = [];
    const proxy = proxySettings(cursor, scope, (option) => {
      if (option.name === 'uri') {
        if (uriSpan !== null) option.failTwice(uriSpan);
        uriSpan = option.span;
        uri = name(option, 'a path');
      } else if (option.name === 'copy_headers') {
        copyHeaders.push(...copiedHeaders(option));
      } else {
        return false;
      }
      option.end();
      return true;
    });
    cursor.end();
    if (uri === null) {
      return cursor.fail(
        cursor.span,
        'missing-option',
        'forward_auth needs uri',
        'for example uri /auth',
      );
    }
    return [step(cursor, matcher, { kind: 'forward_auth', proxy, uri, copyHeaders })];
  },
};

function copiedHeaders(cursor: Cursor): CopiedHeader[] {
  const inline = cursor.rest();
  const below = cursor.lines().flatMap((line) => {
    const [first] = line.line.words;
    line.end();
    return first === undefined ? [] : [first];
  });
  if (inline.length + below.length === 0) cursor.argument('a header field');
  return [...inline, ...below].map((word) => copiedHeader(cursor, word));
}

/** `Remote-User`, or `Remote-User>X-User` to give it another name. */
function copiedHeader(cursor: Cursor, word: Word): CopiedHeader {
  const [from = '', to = from] = word.text.split('>', 2);
  return { from: headerName(cursor, word, from), to: headerName(cursor, word, to) };
}

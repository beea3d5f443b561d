import { headerOperation } from '../../hubfile/header-operation.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

export const requestHeader: Directive = {
  usage: 'request_header [<matcher>] [+|-]<field> [<value>|<find>] [<replace>]',
  summary: 'changes fields of the request',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const operations = [headerOperation(cursor, 'request')];
    cursor.end();
    return [step(cursor, matcher, { kind: 'request_header', operations })];
  },
};

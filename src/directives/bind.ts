import type { DirectiveSyntax } from '../hubfile/scope.ts';
import { bindAddresses } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

const USAGE = `
bind <address…>
bind unix//path/to/socket[|<mode>]
bind fd/<number>
`;

/** The addresses of the site: interfaces, Unix sockets, or sockets that the gateway has inherited. */
const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'where the site listens: addresses, Unix sockets, or inherited sockets',
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    const addresses = bindAddresses(cursor);
    cursor.end();
    scope.site.bind = cursor.origins.of(cursor.span, addresses);
    return [];
  },
};

export const bind: Directive = { syntax };

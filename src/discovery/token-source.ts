import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** Where tokens come from that the app does not send itself. */
export interface TokenSource {
  /** Fields of the request on which the outcome depends. */
  readonly requestFields: readonly string[];
  /** The token for whoever gets this response; null when none is due. Never rejects. */
  tokenFor(exchange: Exchange, response: HeaderList): Promise<string | null>;
}

/** The fields of the request that the placeholders of some texts name. */
export function requestFieldsOf(templates: readonly string[]): readonly string[] {
  const fields = new Set<string>();
  for (const template of templates) {
    for (const [, family, name = ''] of template.matchAll(/\{(cookie|header)\.([^{}]+)\}/g)) {
      fields.add(family === 'cookie' ? 'Cookie' : name);
    }
  }
  return [...fields];
}

import { isHeaderName } from '../../config/well-formed.ts';
import { HeaderList } from '../../http/header-list.ts';
import { HubgateError } from '../../kernel/error.ts';
import { MAX_HEAD_BYTES } from '../forwarding.ts';

export interface ScriptHead {
  readonly status: number;
  readonly headers: HeaderList;
  /** The beginning of the body. */
  readonly rest: Buffer;
}

/** Gathers the head of a script's response (RFC 3875 §6.2, §6.3). */
export class HeadReader {
  #bytes: Buffer = Buffer.alloc(0);

  /**
   * The head once it is complete; until then null.
   *
   * @throws HubgateError `upstream-broken` for one that is too long, or none
   */
  read(chunk: Buffer): ScriptHead | null {
    const from = Math.max(0, this.#bytes.length - 3);
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    const text = this.#bytes.toString('latin1', 0, MAX_HEAD_BYTES);
    const end = /\r?\n\r?\n/.exec(text.slice(from));
    if (end === null) {
      if (this.#bytes.length >= MAX_HEAD_BYTES) {
        throw broken(`a head of more than ${MAX_HEAD_BYTES} bytes`);
      }
      return null;
    }
    const at = from + end.index;
    const rest = this.#bytes.subarray(at + end[0].length);
    return { ...headOf(text.slice(0, at)), rest };
  }
}

function headOf(text: string): { readonly status: number; readonly headers: HeaderList } {
  const headers = new HeaderList();
  let status: number | null = null;
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).trim();
    if (colon === -1 || !isHeaderName(name) || !/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
      throw broken('a head with a line that is no field');
    }
    if (name.toLowerCase() !== 'status') headers.append(name, value);
    else if (/^[2-5]\d\d(?: |$)/.test(value)) status = Number(value.slice(0, 3));
    else throw broken('a status that is none of a final response');
  }
  return { status: status ?? (headers.has('location') ? 302 : 200), headers };
}

function broken(what: string): HubgateError {
  return new HubgateError('upstream-broken', `The script answered with ${what}`);
}

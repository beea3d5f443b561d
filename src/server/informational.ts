import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { HeaderList } from '../http/header-list.ts';
import { writeAhead } from './node-internals.ts';

/** Bytes that may wait for a client to read them before it gets no more informational responses. */
const MAX_WAITING_BYTES = 64 * 1024;

/** RFC 9110 §5.1. */
const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
/** RFC 9110 §5.5: bytes, of the control characters the tab only. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * Sends a 1xx response before the head of `response` over HTTP/1.1; names keep their case. Node's
 * own ways would drop most of them, or their fields.
 */
export function informHttp1(response: ServerResponse, status: number, headers: HeaderList): void {
  if (status === 100) {
    // Node closes the connection of a client that waits for 100 unless it has sent that itself.
    response.writeContinue();
    return;
  }
  if (response.writableLength > MAX_WAITING_BYTES) return;
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
  for (const [name, value] of headers) {
    // What could end the line would begin another response.
    if (NAME.test(name) && VALUE.test(value)) head += `${name}: ${value}\r\n`;
  }
  writeAhead(response, `${head}\r\n`);
}

import type { FileHandle } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { pourInto } from '../../../http/body-end.ts';
import type { ByteRange } from '../../../http/conditions.ts';
import { givesBack } from '../../../http/writable-stream.ts';

/**
 * Bytes that one read of a file brings at most, and that a client who takes it slowly holds here. Each
 * read is a visit to a thread: with 64 KiB a download costs about a third more.
 */
export const FILE_READ_BYTES = 256 * 1024;

/**
 * Writes a part of a file to a body, and ends that. One buffer is filled again and again where the body
 * keeps nothing of it.
 *
 * @throws Error when the file became shorter while it was read; whatever `pourInto` throws
 */
export async function pourFile(file: FileHandle, part: ByteRange, body: Writable): Promise<void> {
  const isGivenBack = givesBack(body);
  await pourInto(contentOf(file, part, isGivenBack), body, isGivenBack);
}

async function* contentOf(
  file: FileHandle,
  { start, end }: ByteRange,
  isGivenBack: boolean,
): AsyncGenerator<Buffer> {
  const most = Math.min(FILE_READ_BYTES, end - start + 1);
  let buffer = Buffer.allocUnsafeSlow(most);
  for (let at = start; at <= end; ) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(most, end + 1 - at), at);
    if (bytesRead === 0) throw new Error('the file became shorter while it was read');
    yield bytesRead < most ? buffer.subarray(0, bytesRead) : buffer;
    at += bytesRead;
    if (!isGivenBack && at <= end) buffer = Buffer.allocUnsafeSlow(most);
  }
}

// What the hub's own code uses of Node's `Buffer`; scripts/build.mjs puts it in its place.
const encoder = new TextEncoder();

export const Buffer = {
  byteLength: (text: string): number => encoder.encode(text).length,
  /** Of base64url; the caller has looked at the alphabet. */
  from(text: string, _encoding: 'base64url'): Uint8Array {
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  },
};

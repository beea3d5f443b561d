// The functions of Node's `Buffer` that the hub's own code uses; scripts/build.mjs inserts this module in its
// place.
const encoder = new TextEncoder();

export const Buffer = {
  byteLength: (text: string): number => encoder.encode(text).length,
  /** Decodes base64url. The caller has checked the alphabet. */
  from(text: string, _encoding: 'base64url'): Uint8Array {
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  },
};

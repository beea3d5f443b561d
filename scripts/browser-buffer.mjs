// The functions of Node's `Buffer` that the hub's own code uses, for the script of the debugger page. build.mjs inserts
// this module in its place.
const encoder = new TextEncoder();

export const Buffer = {
  byteLength: (text) => encoder.encode(text).length,
  /** Decodes base64url. The caller has checked the alphabet. */
  from(text) {
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  },
};

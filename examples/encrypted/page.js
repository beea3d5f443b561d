// The page's own response tells where the hub is and where the keys are.
const links = (await fetch(location.href)).headers.get('Link');
const target = (relation) => new RegExp(`<([^>]*)>[^,]*rel="${relation}"`).exec(links)[1];

const { keys } = await (await fetch(target('key-set'))).json();
const key = await crypto.subtle.importKey('jwk', { kty: 'oct', k: keys[0].k }, 'AES-GCM', false, [
  'decrypt',
]);

const source = new EventSource(
  `${target('hub')}?match=${encodeURIComponent(`${location.origin}/secrets`)}`,
);
source.onopen = () => (document.body.dataset.state = 'open');
source.onmessage = async ({ data }) => {
  const item = document.createElement('li');
  item.textContent = await decrypt(data);
  document.querySelector('ul').append(item);
};

/** JWE compact serialization with a shared key: header, no encrypted key, iv, ciphertext, tag. */
async function decrypt(jwe) {
  const [header, , iv, ciphertext, tag] = jwe.split('.');
  const plain = await crypto.subtle.decrypt(
    { name: 'AES-GCM', iv: bytes(iv), additionalData: new TextEncoder().encode(header) },
    key,
    new Uint8Array([...bytes(ciphertext), ...bytes(tag)]),
  );
  return new TextDecoder().decode(plain);
}

function bytes(base64url) {
  const text = atob(base64url.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

import { find } from './element.ts';

/** What was just done, to be said by a program. */
export type Action =
  | {
      readonly kind: 'subscribe';
      readonly url: string;
      readonly cursor: string | null;
      readonly hasToken: boolean;
    }
  | {
      readonly kind: 'publish';
      readonly url: string;
      /** Of the form, in its order. */
      readonly fields: readonly (readonly [name: string, value: string])[];
      readonly hasToken: boolean;
    };

/** How long "Copied" is shown, in milliseconds. */
const SHOWN_MS = 2_000;

/** Shows it as curl and as JavaScript. The token is `$TOKEN`: what is copied here goes places. */
export function showCode(action: Action): void {
  const what =
    action.kind === 'subscribe' ? 'How you have just subscribed' : 'How you have just published';
  find('code-about', HTMLElement).textContent = what;
  find('curl', HTMLElement).textContent = asCurl(action);
  find('javascript', HTMLElement).textContent = asJavaScript(action);
  find('code', HTMLElement).hidden = false;
}

export function enableCopying(): void {
  for (const name of ['curl', 'javascript']) {
    const button = find(`copy-${name}`, HTMLButtonElement);
    const label = button.textContent;
    button.addEventListener('click', () => {
      void copy(find(name, HTMLElement)).then((done) => {
        button.textContent = done ? 'Copied' : 'Selected: press Ctrl+C';
        setTimeout(() => (button.textContent = label), SHOWN_MS);
      });
    });
  }
}

function asCurl(action: Action): string {
  const lines = ['curl --silent --show-error'];
  if (action.hasToken) lines.push('-H "Authorization: Bearer $TOKEN"');
  if (action.kind === 'subscribe') {
    lines[0] += ' --no-buffer';
    if (action.cursor !== null) lines.push(`-H ${quoted(`Last-Event-ID: ${action.cursor}`)}`);
  } else {
    for (const [name, value] of action.fields) {
      lines.push(`--data-urlencode ${quoted(`${name}=${value}`)}`);
    }
  }
  return [...lines, quoted(action.url)].join(' \\\n  ');
}

function asJavaScript(action: Action): string {
  const { url, hasToken } = action;
  const authorization = hasToken ? '  headers: { Authorization: `Bearer ${TOKEN}` },\n' : '';
  if (action.kind === 'publish') {
    return `const answer = await fetch(${JSON.stringify(url)}, {
  method: 'POST',
${authorization}  body: new URLSearchParams([
${action.fields.map(([name, value]) => `    [${JSON.stringify(name)}, ${JSON.stringify(value)}],\n`).join('')}  ]),
});
console.log(answer.status, await answer.text());`;
  }
  const address = new URL(url);
  if (action.cursor !== null) address.searchParams.set('last_event_id', action.cursor);
  const target = JSON.stringify(address.href);
  return hasToken
    ? `// EventSource sends no token.
const answer = await fetch(${target}, {
${authorization}});
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) console.log(text);`
    : `const source = new EventSource(${target}, { withCredentials: true });
source.onmessage = ({ lastEventId, data }) => console.log(lastEventId, data);`;
}

/** For a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** False where the browser gives no clipboard, as over plain HTTP: then it is selected. */
async function copy(code: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection()?.selectAllChildren(code);
    return false;
  }
}

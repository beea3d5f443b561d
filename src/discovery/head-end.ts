/** Elements whose content is text up to their own end tag, in a browser with scripting. */
const RAW = new Set(['title', 'style', 'script', 'noscript', 'noframes']);
/** Elements that are also raw text in a template, which may contain any element. */
const RAW_ANYWHERE = new Set([...RAW, 'textarea', 'xmp', 'iframe', 'noembed']);
/** Other elements that are allowed in a head and do not end it. */
const HEAD_ONLY = new Set(['meta', 'link', 'base', 'basefont', 'bgsound']);

/** Characters after "<" that identify every name with a meaning here; the longest is `</template>`. */
const LOOK_AHEAD = 12;
/** Bytes of a `meta` or `base` element that are examined. */
const MAX_ELEMENT = 8192;

/** Tags, comments and declarations of a head that are examined. A page with more of them stays unchanged. */
export const MAX_MARKUP = 2_000;

const LT = 0x3c;
const GT = 0x3e;
const SLASH = 0x2f;
const BANG = 0x21;
const DASH = 0x2d;
const EQUALS = 0x3d;

type State = 'data' | 'tag' | 'comment' | 'declaration' | 'raw';
type Quote = 'tag-name' | 'none' | 'after-equals' | 'unquoted' | 0x22 | 0x27;

/** The result for a piece of a document. */
export type Found =
  /** The head ends before this byte of the piece. */
  | { readonly kind: 'end'; readonly at: number }
  /** Not yet. The bytes from here on must be passed again, together with the next ones. */
  | { readonly kind: 'more'; readonly from: number }
  /** This is a fragment, not a document. */
  | { readonly kind: 'fragment' };

/**
 * Finds the end of a document's head in a stream (WHATWG HTML §13.2.6.4), in any encoding in which the
 * characters of markup are those of ASCII. It stores no bytes except those of `meta` and `base`.
 */
export class HeadEnd {
  /** The `meta` and `base` elements so far, as written. */
  readonly elements: string[] = [];
  #state: State = 'data';
  /** Whether a doctype, `html` or `head` has been found, so that this is a document. */
  #isDocument = false;
  #isStart = true;
  /** Open templates, whose content is not part of the head. */
  #templates = 0;
  /** The raw text element that begins at the end of the tag, or whose content this is. */
  #raw = '';
  #quote: Quote = 'none';
  /** Whether the attribute already has a name; an "=" before it is part of the name. */
  #named = false;
  #dashes = 0;
  /** Whether the comment ends with "--!" so far. */
  #bang = false;
  /** Whether a comment has only dashes so far. */
  #isCommentStart = false;
  /** The state of a script: "<!--" was found, and then perhaps "<script" (WHATWG HTML §13.2.5.18 ff.). */
  #script: 'plain' | 'escaped' | 'double-escaped' = 'plain';
  #element: string | null = null;
  /** The number of examined positions. */
  #markups = 0;

  /** @param isLast whether this is the last piece */
  scan(bytes: Buffer, isLast: boolean): Found {
    if (this.#isStart && bytes.length < 3 && !isLast) return { kind: 'more', from: 0 };
    let at = this.#isStart ? this.#skipMark(bytes) : 0;
    for (; at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0;
      switch (this.#state) {
        case 'tag':
          this.#inTag(byte);
          break;
        case 'comment':
          this.#inComment(byte);
          break;
        case 'declaration':
          if (byte === GT) this.#state = 'data';
          break;
        case 'raw': {
          if (byte !== LT) {
            this.#inRaw(byte);
            break;
          }
          if (isCut(bytes, at, isLast)) return { kind: 'more', from: at };
          if (!mayEndRaw(bytes[at + 1])) {
            this.#dashes = 0;
            break;
          }
          if (this.#isTooMuch()) return { kind: 'fragment' };
          this.#rawMarkup(lookAhead(bytes, at));
          break;
        }
        case 'data': {
          if (isSpace(byte)) break;
          if (byte === LT && isCut(bytes, at, isLast)) return { kind: 'more', from: at };
          if (byte === LT && this.#isTooMuch()) return { kind: 'fragment' };
          const step = byte === LT ? this.#markup(lookAhead(bytes, at)) : this.#text();
          if (step === 'end') return { kind: 'end', at };
          if (step === 'fragment') return { kind: 'fragment' };
          break;
        }
      }
    }
    if (!isLast) return { kind: 'more', from: at };
    const isOpen = this.#isDocument && this.#state === 'data' && this.#templates === 0;
    return isOpen ? { kind: 'end', at } : { kind: 'fragment' };
  }

  #isTooMuch(): boolean {
    this.#markups += 1;
    return this.#markups > MAX_MARKUP;
  }

  /** Skips U+FEFF in UTF-8. */
  #skipMark(bytes: Buffer): number {
    this.#isStart = false;
    return bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0;
  }

  #text(): 'end' | 'fragment' | 'go on' {
    if (this.#templates > 0) return 'go on';
    return this.#isDocument ? 'end' : 'fragment';
  }

  /** @param ahead the text from "<" on, in lower case */
  #markup(ahead: string): 'end' | 'fragment' | 'go on' {
    if (ahead.startsWith('<!--')) {
      this.#state = 'comment';
      this.#dashes = 0;
      this.#bang = false;
      this.#isCommentStart = true;
      return 'go on';
    }
    if (ahead.startsWith('<!') || ahead.startsWith('<?')) {
      if (ahead.startsWith('<!doctype')) this.#isDocument = true;
      this.#state = 'declaration';
      return 'go on';
    }
    const [, slash = '', name = ''] = /^<(\/?)([a-z][^\s/>]*)/.exec(ahead) ?? [];
    if (name === '') {
      if (!ahead.startsWith('</')) return this.#text();
      this.#state = 'declaration';
      return 'go on';
    }
    return slash === '' ? this.#startTag(name) : this.#endTag(name);
  }

  #startTag(name: string): 'end' | 'fragment' | 'go on' {
    if (name === 'html' || name === 'head') this.#isDocument = true;
    else if (!this.#isDocument) return 'fragment';
    else if (this.#templates === 0 && !RAW.has(name) && !HEAD_ONLY.has(name)) {
      if (name !== 'template') return 'end';
    }
    if (name === 'template') this.#templates += 1;
    this.#openTag();
    const isRaw = this.#templates === 0 ? RAW.has(name) : RAW_ANYWHERE.has(name);
    this.#raw = isRaw ? name : '';
    if ((name === 'meta' || name === 'base') && this.#templates === 0) this.#element = '';
    return 'go on';
  }

  #endTag(name: string): 'end' | 'fragment' | 'go on' {
    if (this.#templates === 0) {
      const ends = name === 'head' || name === 'body' || name === 'html' || name === 'br';
      if (ends) return this.#isDocument ? 'end' : 'fragment';
    } else if (name === 'template') this.#templates -= 1;
    this.#openTag();
    this.#raw = '';
    return 'go on';
  }

  #openTag(): void {
    this.#state = 'tag';
    this.#quote = 'tag-name';
    this.#named = false;
  }

  #inTag(byte: number): void {
    if (this.#element !== null && this.#element.length < MAX_ELEMENT) {
      this.#element += String.fromCharCode(byte);
    }
    const quote = this.#quote;
    if (typeof quote === 'number') {
      if (byte === quote) this.#endValue();
      return;
    }
    if (byte === GT) return this.#closeTag();
    if (quote === 'tag-name') {
      if (isSpace(byte) || byte === SLASH) this.#endValue();
      return;
    }
    if (isSpace(byte)) {
      if (quote === 'unquoted') this.#endValue();
      return;
    }
    if (quote === 'after-equals') {
      this.#quote = byte === 0x22 || byte === 0x27 ? byte : 'unquoted';
      return;
    }
    if (quote === 'unquoted') return;
    if (byte === EQUALS && this.#named) this.#quote = 'after-equals';
    else this.#named = byte !== SLASH;
  }

  #endValue(): void {
    this.#quote = 'none';
    this.#named = false;
  }

  #closeTag(): void {
    if (this.#element !== null) this.elements.push(this.#element);
    this.#element = null;
    this.#state = this.#raw === '' ? 'data' : 'raw';
    this.#script = 'plain';
    this.#dashes = 0;
  }

  /**
   * WHATWG HTML §13.2.5.43 to 52. The dashes of "<!--" itself end a comment, as in "<!-->", but "!" does not follow
   * them.
   */
  #inComment(byte: number): void {
    if (byte === DASH) {
      this.#dashes += 1;
      this.#bang = false;
      return;
    }
    if (byte === GT && (this.#dashes >= 2 || this.#bang)) {
      this.#state = 'data';
      return;
    }
    this.#bang = byte === BANG && this.#dashes >= (this.#isCommentStart ? 4 : 2);
    // The "!" of "<!--" is the first byte here.
    this.#isCommentStart &&= this.#dashes === 0;
    this.#dashes = 0;
  }

  #inRaw(byte: number): void {
    if (byte === DASH) this.#dashes += 1;
    else {
      if (byte === GT && this.#dashes >= 2) this.#script = 'plain';
      this.#dashes = 0;
    }
  }

  #rawMarkup(ahead: string): void {
    this.#dashes = 0;
    const [, slash, name = ''] = /^<(\/?)([a-z]+)[\s/>]/.exec(ahead) ?? [];
    if (this.#raw === 'script') {
      if (ahead.startsWith('<!--') && this.#script === 'plain') {
        this.#script = 'escaped';
        return;
      }
      if (name === 'script' && slash === '' && this.#script === 'escaped') {
        this.#script = 'double-escaped';
        return;
      }
      if (name === 'script' && slash === '/' && this.#script === 'double-escaped') {
        this.#script = 'escaped';
        return;
      }
    }
    if (slash !== '/' || name !== this.#raw) return;
    this.#openTag();
    this.#raw = '';
  }
}

/** Whether the text after "<" may still change its meaning. */
function isCut(bytes: Buffer, at: number, isLast: boolean): boolean {
  if (isLast || bytes.length - at >= LOOK_AHEAD) return false;
  // A name is known when it has ended.
  return !/^<(?:\/?[a-z][^\s/>]*[\s/>]|!--|[^a-z/!?])/i.test(bytes.toString('latin1', at));
}

/** Whether the text after "<" in raw text can be `</…`, `<!--` or `<script`. */
function mayEndRaw(next: number | undefined): boolean {
  return next === SLASH || next === BANG || next === 0x53 || next === 0x73;
}

function lookAhead(bytes: Buffer, at: number): string {
  return bytes.toString('latin1', at, at + LOOK_AHEAD).toLowerCase();
}

function isSpace(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d && byte !== 0x0b);
}

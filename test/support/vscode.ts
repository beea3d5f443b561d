import { createRequire } from 'node:module';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compileFunction } from 'node:vm';
import { build } from 'esbuild';
import { editorBundle } from '../../scripts/build.mjs';

const require = createRequire(import.meta.url);

class Position {
  readonly line: number;
  readonly character: number;
  constructor(line: number, character: number) {
    this.line = line;
    this.character = character;
  }
}

class Range {
  readonly start: Position;
  readonly end: Position;
  constructor(...ends: [Position, Position] | [number, number, number, number]) {
    const [a, b, c, d] = ends;
    const isNumbers = typeof a === 'number' && typeof b === 'number';
    this.start = isNumbers ? new Position(a, b) : (a as Position);
    this.end = isNumbers ? new Position(c ?? 0, d ?? 0) : (b as Position);
  }
}

class Uri {
  readonly scheme = 'file';
  readonly fsPath: string;
  constructor(fsPath: string) {
    this.fsPath = fsPath;
  }
  static file(path: string): Uri {
    return new Uri(path);
  }
  toString(): string {
    return `file://${this.fsPath}`;
  }
}

/** A document as the editor has it. */
export class Document {
  readonly languageId = 'hubfile';
  readonly uri: Uri;
  readonly #text: string;
  constructor(text: string, path = '/nowhere/Hubfile') {
    this.#text = text;
    this.uri = new Uri(path);
  }
  get lineCount(): number {
    return this.#text.split('\n').length;
  }
  getText(): string {
    return this.#text;
  }
  lineAt(line: number): { readonly text: string } {
    return { text: this.#text.split('\n')[line] ?? '' };
  }
  offsetAt({ line, character }: Position): number {
    const before = this.#text.split('\n').slice(0, line);
    return before.reduce((sum, each) => sum + each.length + 1, 0) + character;
  }
  positionAt(offset: number): Position {
    const lines = this.#text.slice(0, offset).split('\n');
    return new Position(lines.length - 1, lines.at(-1)?.length ?? 0);
  }
}

export interface Item {
  readonly label: string;
  readonly kind: string;
  readonly detail?: string;
  readonly documentation?: { readonly value: string };
  readonly range: Range;
  readonly insertText?: { readonly value: string };
}

interface Providers {
  readonly provideHover: (
    document: Document,
    position: Position,
  ) => { readonly contents: { readonly value: string }; readonly range: Range } | null;
  readonly provideCompletionItems: (document: Document, position: Position) => readonly Item[];
}

interface Shown {
  readonly message: string;
  readonly range: Range;
  readonly severity: string;
  readonly code: string;
}

/** The extension as the editor runs it, with what it calls of the editor and no more. */
export interface Editor extends Providers {
  readonly settings: Map<string, unknown>;
  trusted: boolean;
  folder: string | undefined;
  /** By file. */
  readonly diagnostics: Map<string, readonly Shown[]>;
  save(document: Document): void;
  close(document: Document): void;
  /** When the next diagnostics are shown. */
  shown(): Promise<void>;
}

const named = (prefix: string): unknown =>
  new Proxy({}, { get: (_, name) => `${prefix}.${String(name)}` });

/** Bundles the extension as `npm run build` does, and activates it. */
export async function startEditor(extensionPath: string): Promise<Editor> {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-vscode-'));
  const bundle = join(directory, 'extension.js');
  await build(editorBundle(bundle));
  const code = readFileSync(bundle, 'utf8');
  rmSync(directory, { recursive: true });
  const providers: Partial<Providers> = {};
  const saved: ((document: Document) => void)[] = [];
  const closed: ((document: Document) => void)[] = [];
  let waiting: (() => void)[] = [];
  const diagnostics = new Map<string, readonly Shown[]>();
  const settings = new Map<string, unknown>();
  const state = { trusted: true, folder: undefined as string | undefined };
  const nothing = { dispose: () => {} };
  const vscode = {
    Position,
    Range,
    Uri,
    CompletionItemKind: named('kind'),
    DiagnosticSeverity: named('severity'),
    CompletionItem: class {
      readonly label: string;
      readonly kind: string;
      constructor(label: string, kind: string) {
        this.label = label;
        this.kind = kind;
      }
    },
    SnippetString: class {
      readonly value: string;
      constructor(value: string) {
        this.value = value;
      }
    },
    MarkdownString: class {
      readonly value: string;
      constructor(value: string) {
        this.value = value;
      }
    },
    Hover: class {
      readonly contents: unknown;
      readonly range: Range;
      constructor(contents: unknown, range: Range) {
        this.contents = contents;
        this.range = range;
      }
    },
    Diagnostic: class {
      readonly range: Range;
      readonly message: string;
      readonly severity: string;
      constructor(range: Range, message: string, severity: string) {
        this.range = range;
        this.message = message;
        this.severity = severity;
      }
    },
    Disposable: { from: () => nothing },
    languages: {
      registerHoverProvider: (_: string, provider: object) => {
        Object.assign(providers, provider);
        return nothing;
      },
      registerCompletionItemProvider: (_: string, provider: object) => {
        Object.assign(providers, provider);
        return nothing;
      },
      createDiagnosticCollection: () => ({
        set: (uri: Uri, each: readonly Shown[]) => {
          diagnostics.set(uri.fsPath, each);
          for (const resolve of waiting) resolve();
          waiting = [];
        },
        delete: (uri: Uri) => diagnostics.delete(uri.fsPath),
      }),
    },
    workspace: {
      get isTrusted() {
        return state.trusted;
      },
      getConfiguration: () => ({ get: (name: string) => settings.get(name) }),
      getWorkspaceFolder: () =>
        state.folder === undefined ? undefined : { uri: new Uri(state.folder) },
      onDidSaveTextDocument: (listener: (document: Document) => void) => {
        saved.push(listener);
        return nothing;
      },
      onDidCloseTextDocument: (listener: (document: Document) => void) => {
        closed.push(listener);
        return nothing;
      },
    },
  };
  const module = { exports: {} as { activate?: (context: object) => void } };
  const load = (name: string): unknown => (name === 'vscode' ? vscode : require(name));
  const names = ['require', 'module', 'exports'];
  Reflect.apply(compileFunction(code, names), null, [load, module, module.exports]);
  module.exports.activate?.({ extensionPath, subscriptions: [] });
  const { provideHover, provideCompletionItems } = providers;
  if (provideHover === undefined || provideCompletionItems === undefined) {
    throw new Error('the extension registers no providers');
  }
  return Object.assign(state, {
    ...{ provideHover, provideCompletionItems, settings, diagnostics },
    save: (document: Document) => {
      for (const listener of saved) listener(document);
    },
    close: (document: Document) => {
      for (const listener of closed) listener(document);
    },
    shown: () => new Promise<void>((resolve) => waiting.push(resolve)),
  });
}

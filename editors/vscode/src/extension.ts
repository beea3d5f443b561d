import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { suggestionsAt, type Suggestion } from './completion.ts';
import { checkOnSave } from './diagnostics.ts';
import { explanationAt } from './hover.ts';

const KINDS: Readonly<Record<Suggestion['kind'], vscode.CompletionItemKind>> = {
  directive: vscode.CompletionItemKind.Keyword,
  option: vscode.CompletionItemKind.Property,
  condition: vscode.CompletionItemKind.Function,
  matcher: vscode.CompletionItemKind.Variable,
  placeholder: vscode.CompletionItemKind.Variable,
  value: vscode.CompletionItemKind.EnumMember,
  form: vscode.CompletionItemKind.Snippet,
};

/** Called by the editor with the first Hubfile that is opened. */
export function activate(context: vscode.ExtensionContext): void {
  const linkTo = documentation(context.extensionPath);
  context.subscriptions.push(
    vscode.languages.registerHoverProvider('hubfile', {
      provideHover: (document, position) => hover(document, position, linkTo),
    }),
    vscode.languages.registerCompletionItemProvider(
      'hubfile',
      { provideCompletionItems: completion },
      ...['{', '@'],
    ),
    checkOnSave(),
  );
}

function hover(
  document: vscode.TextDocument,
  position: vscode.Position,
  linkTo: (section: string) => string,
): vscode.Hover | null {
  const found = explanationAt(document.getText(), document.offsetAt(position));
  if (found === null) return null;
  const range = new vscode.Range(document.positionAt(found.start), document.positionAt(found.end));
  return new vscode.Hover(new vscode.MarkdownString(found.text + linkTo(found.section)), range);
}

function completion(
  document: vscode.TextDocument,
  position: vscode.Position,
): vscode.CompletionItem[] {
  const found = suggestionsAt(document.getText(), document.offsetAt(position));
  return found.map(({ label, kind, detail, about, snippet, start }, index) => {
    const item = new vscode.CompletionItem(label, KINDS[kind]);
    item.detail = detail;
    item.documentation = new vscode.MarkdownString(about);
    item.range = new vscode.Range(document.positionAt(start), position);
    // As they run, and as the documents have them.
    item.sortText = String(index).padStart(4, '0');
    if (snippet !== undefined) item.insertText = new vscode.SnippetString(snippet);
    return item;
  });
}

/** A link to the page of the checkout that this extension is in, at a heading; none without that. */
function documentation(extension: string): (section: string) => string {
  const page = join(realpathSync(extension), '../../docs/hubfile.md');
  if (!existsSync(page)) return () => '';
  const headings = readFileSync(page, 'utf8')
    .split('\n')
    .map((line) => /^##+ (.+)$/.exec(line)?.[1]?.toLowerCase());
  const uri = vscode.Uri.file(page).toString();
  return (section) => `\n\n[docs/hubfile.md](${uri}#L${headings.indexOf(section) + 1})`;
}

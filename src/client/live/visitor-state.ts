/*
 * The visitor's activity: typing, selecting, playing. A form is treated as a whole: untouched parts of it,
 * such as a hidden revision or a token, belong to what was typed.
 */
import { inert, sentFor, shownFor, snapshot } from './sent-document.ts';

/** Forms that the visitor has touched, and fields without a form; `sent` once they have been sent. */
const touched = new WeakMap<Element, 'touched' | 'sent'>();

/** Those in which something was entered that cannot be compared with what the server sends, as in a custom element. */
const opaque = new WeakSet<Element>();

/** Fields in which a library shows again what the visitor has entered, and their forms. */
const returned = new WeakSet<Element>();

/** Some editors, such as CodeMirror and Ace, read what is typed from a field that is never sent. */
const EDITORS = 'iframe,canvas,[contenteditable],textarea:not([name])';
/** Visible fields, editable elements and media: what a visitor works with. */
const CONTROLS = 'input:not([type=hidden]),textarea,select,audio,video,[contenteditable]';
/** Elements whose values are compared with those that the server sends. */
export const ENTRIES = 'input,textarea,select,[contenteditable]';

/** The form of a field; for any other element the surrounding one. */
export function formOf(element: Element): Element | null {
  // A field of a form may have the name "form".
  if (element.localName === 'form') return element;
  return (element as HTMLInputElement).form ?? element.closest('form');
}

/** Whether the visitor has entered anything since the page was loaded. */
let hasEntered = false;

/** The visitor has entered something in an element. */
function noteEdit(target: Element): void {
  const owner = formOf(target) ?? target;
  touched.set(owner, 'touched');
  hasEntered = true;
  if (!target.matches(ENTRIES) || !sentFor.has(target)) opaque.add(owner);
}

/** Listens to events before libraries and the page do. */
export function on(names: string, listener: (event: Event) => void): void {
  for (const name of names.split(' ')) addEventListener(name, listener, true);
}

on('input change', ({ target, type }) => {
  // A field that was reset fires a change event when it loses the focus.
  if (target instanceof Element && (type === 'input' || isChanged(target))) noteEdit(target);
});
/** Whether the visitor may have drawn something in the page. */
let isDrawnOn = false;
// Neither a frame nor a canvas, such as that for a signature, says what is typed or drawn in it. A frame gets the focus
// after the window has lost it. Nothing reports when the visitor goes from one frame to another.
on('blur', () =>
  setTimeout(() => {
    const isFrame = document.activeElement instanceof HTMLIFrameElement;
    if (isFrame) document.querySelectorAll('iframe').forEach(noteEdit);
  }),
);
on('pointerdown', ({ target }) => {
  if (!(target instanceof HTMLCanvasElement)) return;
  isDrawnOn = true;
  noteEdit(target);
});
// These run after all other listeners, when it is known whether a script has kept a form from being reset. What was sent
// stays until the server shows it: the page after the form may be a download, or that of an error.
addEventListener('reset', ({ target, defaultPrevented }) => {
  if (!defaultPrevented) touched.delete(target as Element);
});
addEventListener('submit', ({ target, defaultPrevented }) => {
  const form = target as Element;
  if (touched.has(form) && (defaultPrevented || !opaque.has(form))) touched.set(form, 'sent');
});

/** Whether the visitor is active in a form, so that all of it must stay. */
export function isAtWork(form: Element, isAsSent: () => boolean): boolean {
  const state = touched.get(form);
  if (state === 'touched' || (state === 'sent' && !isAsSent())) return true;
  // A visitor that reads a field in order to change it relies on its current value.
  if (fieldsOf(form).some((field) => isChanged(field) || isFocused(field))) return true;
  // Editors that scripts have created do not report what is typed in them.
  return hasEditor(form);
}

/** What the visitor has entered as text, for {@link keepReturned}. */
export function enteredTexts(): ReadonlySet<string> {
  const fields = [...document.querySelectorAll(ENTRIES)].filter(
    (one) => isText(one) && (isChanged(one) || isEdited(one) || returned.has(one)),
  );
  return new Set(fields.map(entryOf));
}

/**
 * A library may show again what the visitor has entered: the response to a form shows it with an error, and a history
 * keeps it with a page. There it is the value from the server, but no page of the server has it.
 *
 * @param entered what was entered before
 */
export function keepReturned(root: Element, entered: ReadonlySet<string>): void {
  for (const field of [root, ...root.querySelectorAll(ENTRIES)]) {
    if (sentFor.has(field) || !isText(field) || !entered.has(entryOf(field))) continue;
    const owner = formOf(field) ?? field;
    // A library may replace a single field of a form in which the visitor still works.
    if (!touched.has(owner)) touched.set(owner, 'sent');
    for (const one of [owner, field]) returned.add(one);
  }
}

/** Whether a page of the server has every text that is shown again: then they are saved. */
export function hasReturned(page: Document): boolean {
  const others = new Set([...page.querySelectorAll(ENTRIES)].map(entryOf));
  return [...document.querySelectorAll(ENTRIES)].every(
    (one) => !returned.has(one) || others.has(entryOf(one)),
  );
}

/** Whether a field, which may be any element, contains text that a visitor can enter. */
function isText(field: Element): boolean {
  if (field.matches('[contenteditable]')) return true;
  return (
    field.matches('textarea,input:not([type=hidden],[type=file])') &&
    isEntered(field) &&
    !isBox(field as HTMLInputElement) &&
    valueOf(field) !== ''
  );
}

function entryOf(field: Element): string {
  return [keyOf(field), valueOf(field)].join('\n');
}

/**
 * Keeps forms that show the visitor's text again, before the page with them is taken for the server's. They would count as
 * saved otherwise.
 */
export function holdReturned(): void {
  for (const one of document.querySelectorAll(`form,${ENTRIES}`)) {
    if (returned.has(one) && touched.has(one)) touched.set(one, 'touched');
  }
}

/** The fields of a form or its field; without a form, the radio buttons of a group, or the element itself. */
function fieldsOf(element: Element): Element[] {
  const form = formOf(element);
  const { type, name } = element as HTMLInputElement;
  if (form === null && type !== 'radio') return [element];
  const root = element.getRootNode() as ParentNode;
  return [...root.querySelectorAll<HTMLInputElement>(ENTRIES)].filter(
    (one) => formOf(one) === form && (form !== null || (one.type === 'radio' && one.name === name)),
  );
}

/**
 * If the next page has all that the visitor has entered in a form or field, it is saved. It then counts as sent by
 * the server, even while the field has the focus: the page after it may have something else.
 */
export function takeSaved(shown: Element, next: Element): void {
  const owner = formOf(shown) ?? shown;
  if (opaque.has(owner) || hasAdditions(owner)) return;
  let others = fieldsOf(next);
  const fields = fieldsOf(shown).filter(isEntered);
  const isReturned = returned.has(owner);
  const isSaved = fields.every((field) => {
    const other = others.find((one) => keyOf(one) === keyOf(field));
    others = others.filter((one) => one !== other);
    return other === undefined
      ? !isReturned &&
          sentFor.has(field) &&
          !field.matches('[contenteditable]') &&
          !isChanged(field)
      : valueOf(other) === valueOf(field);
  });
  // A script that empties a field may keep what was entered. In a form, only a value that arrives shows that it is saved.
  const isShown =
    owner.localName !== 'form' ||
    isReturned ||
    fields.some((one) => isChanged(one) || isEdited(one));
  if (!isSaved || !isShown) return;
  fields.forEach(takeValue);
  for (const one of [owner, ...fields]) touched.delete(one);
}

/** The same in a part that the server has not changed: the visitor may have taken a change back. */
export function takeUndone(sent: Element): void {
  for (const one of [sent, ...sent.querySelectorAll(`form,${ENTRIES}`)]) {
    const shown = shownFor.get(one) as Element | undefined;
    if (shown !== undefined && touched.has(shown)) takeSaved(shown, one);
  }
}

/** Whether the visitor may have entered the value: not that of a button, nor the revision or token of the server. */
function isEntered(field: Element): boolean {
  return (
    !/^(?:hidden|submit|button|reset|image)$/.test((field as HTMLInputElement).type) ||
    isChanged(field)
  );
}

function isBox({ type }: HTMLInputElement): boolean {
  return type === 'checkbox' || type === 'radio';
}

function keyOf(field: Element): string {
  const { type, value } = field as HTMLInputElement;
  const isOne = isBox(field as HTMLInputElement);
  return [field.localName, type, field.getAttribute('name'), isOne && value].join();
}

export function valueOf(field: Element): unknown {
  if (field.matches('[contenteditable]')) return field.innerHTML;
  if (field instanceof HTMLSelectElement) {
    return JSON.stringify([...field.selectedOptions].map(({ value }) => value));
  }
  const { value, checked, files } = field as HTMLInputElement;
  if (isUnfinished(field)) return undefined;
  return isBox(field as HTMLInputElement) ? checked : (files?.length ?? value);
}

/** Makes the value of a field the one from the server, without changing what it shows. */
function takeValue(field: Element): void {
  if (field.matches('[contenteditable]')) {
    const sent = sentFor.get(field) as Element | undefined;
    sent?.replaceChildren(...[...field.childNodes].map(snapshot));
  }
  if (!isChanged(field)) return;
  for (const part of field instanceof HTMLSelectElement ? field.options : [field]) {
    // What a field or an option does not have does nothing there.
    const { value, checked, selected } = part as HTMLInputElement & HTMLOptionElement;
    const now = { defaultValue: value, defaultChecked: checked, defaultSelected: selected };
    Object.assign(part, now);
    Object.assign(sentFor.get(part) ?? {}, now);
  }
}

/** Whether an editable element contains something else than from the server. */
function isEdited(field: Element): boolean {
  const sent = sentFor.get(field) as Element | undefined;
  return field.matches('[contenteditable]') && field.innerHTML !== sent?.innerHTML;
}

/** Whether scripts have added something here, which may hold what the visitor has entered. */
function hasAdditions(root: ParentNode): boolean {
  // A browser makes elements for the lines that a visitor types.
  return [...root.querySelectorAll('*')].some(
    (one) => !sentFor.has(one) && !sentFor.has(one.closest('[contenteditable]') ?? one),
  );
}

/** Whether scripts have created an editor here, or have made one of an element from the server, as Trix does. */
function hasEditor(root: ParentNode): boolean {
  return [...root.querySelectorAll(EDITORS)].some(
    (editor) => !(sentFor.get(editor) as Element | undefined)?.matches(EDITORS),
  );
}

/** Whether the visitor works with this very element. */
export function isBusy(element: Element): boolean {
  // Whoever pauses in the middle goes on from there. A signed address, which differs each time, would start it again.
  if (element instanceof HTMLMediaElement) {
    return !element.paused || (element.currentTime > 0 && !element.ended);
  }
  const group = formOf(element) === null ? fieldsOf(element) : [element];
  return group.some(
    (one) => (one.localName !== 'form' && touched.has(one)) || isFocused(one) || isChanged(one),
  );
}

/** The names of fields and attributes with the revision of a record, which an app compares to find edit conflicts. */
const REVISION = /(?:^|[^a-z])(?:etag|lock|rev|revision|updated|version)(?:$|[^a-z])/i;

/**
 * Whether an element is a hidden field without a form, such as the revision of a row that a script saves, and the
 * visitor is at work beside it.
 */
export function holdsRevision(shown: Element): boolean {
  return shown.matches('[type=hidden]') && isBesideWork(shown);
}

/**
 * Whether an attribute has the revision of what the visitor is changing: beside it, or in another form with the same
 * revision. The latter holds for a form of buttons only, such as one that publishes what the other one saves.
 */
export function isRevisionOfWork(name: string, shown: Element): boolean {
  if (name.startsWith('data-')) return REVISION.test(name) && isBesideWork(shown);
  const { name: field, value, form } = shown as HTMLInputElement;
  return (
    name === 'value' &&
    shown.matches('[type=hidden]') &&
    REVISION.test(field) &&
    form?.querySelector(CONTROLS) === null &&
    [...document.getElementsByName(field)].some(
      (one) => (one as HTMLInputElement).value === value && touched.has(formOf(one) ?? one),
    )
  );
}

/** Whether the visitor is at work in an element, or in the smallest surroundings with fields. */
function isBesideWork(shown: Element): boolean {
  let area: Element | null = shown;
  while (area?.querySelector(CONTROLS) === null) area = area.parentElement;
  if (area === null) return false;
  const isWork = (one: Element): boolean => isBusy(one) || touched.has(formOf(one) ?? one);
  return hasEditor(area) || [...area.querySelectorAll(CONTROLS)].some(isWork);
}

/** Whether the visitor may be at work in an element: a quick answer, before each of thousands of rows is looked at. */
export function mayHoldWork(root: Element): boolean {
  const found = root.querySelector([CONTROLS, EDITORS, 'form'].join());
  const active = document.activeElement;
  const hasFocus = active !== document.body && root.contains(active);
  return hasEntered || hasFocus || found !== null || formOf(root) !== null;
}

/** Whether the page can be left without losing data. */
export function mayLeave(): boolean {
  // The browser reports what is typed in a shadow tree at the element that has it.
  return (
    ![...document.querySelectorAll('*')].some(
      (one) => touched.has(one) || (one as { editContext?: unknown }).editContext,
    ) &&
    ![...document.querySelectorAll<HTMLMediaElement>(CONTROLS)].some(
      // Media that have been paused stay as they are, but are not work that would be lost.
      (one) => isBusy(one) && !one.paused,
    ) &&
    !hasEditor(document)
  );
}

/**
 * Whether a reload may lose what is no work for a change of the page: a drawing outside of a form, an open dialog, and
 * what a widget may hold in a hidden field. Scripts fill others.
 */
export function hasOtherWork(): boolean {
  const fields = [...document.querySelectorAll('[type=hidden]')];
  return isDrawnOn || document.querySelector('dialog[open]') !== null || fields.some(isChanged);
}

/** A field, an editor or a frame with the focus. Links and buttons may change while they have it. */
function isFocused(element: Element): boolean {
  return (
    element === document.activeElement &&
    (element.matches([CONTROLS, EDITORS].join()) || element.localName.includes('-'))
  );
}

/** Whether a field contains something else than the value from the server. */
function isChanged(field: Element): boolean {
  if (field instanceof HTMLSelectElement) {
    return [...field.options].some((option) => option.selected !== isChosen(option, field));
  }
  if (!isField(field)) return false;
  const { type, value, checked, defaultChecked, files } = field;
  if (files) return files.length > 0;
  // A widget may keep in it what the visitor has chosen.
  if (type === 'hidden')
    return (sentFor.get(field) as HTMLInputElement | undefined)?.value !== value;
  return isUnfinished(field) || checked !== defaultChecked || (isTyped(field) && !isCleaned(field));
}

/** Whether a part of a date or number is typed. The value stays empty, and no event reports it. */
function isUnfinished(field: Element): boolean {
  return (field as HTMLInputElement).validity?.badInput;
}

/** A `textarea` and a `select` count as well: the properties that they lack are undefined. */
export function isField(element: Element): element is HTMLInputElement {
  return /^(?:input|textarea|select)$/.test(element.localName);
}

/** Whether the visitor may have typed the value. That of a box is its attribute, and nobody can set that of a file. */
function isTyped({ type, value, defaultValue }: HTMLInputElement): boolean {
  return !/^(?:checkbox|radio|file)$/.test(type) && value !== defaultValue;
}

/**
 * The browser has changed the value of the attribute: `type=number value=x` is empty, and `type=range max=5
 * value=9` is 5. No script of the page runs in the copy.
 */
function isCleaned(field: HTMLInputElement): boolean {
  const fresh = inert.importNode(field);
  fresh.value = field.defaultValue;
  return fresh.value === field.value;
}

/** Whether the server has selected this option. */
function isChosen(option: HTMLOptionElement, select: HTMLSelectElement): boolean {
  const options = [...select.options];
  if (select.multiple) return option.defaultSelected;
  // An option of a disabled group is disabled too, although its property says otherwise.
  const chosen =
    options.findLast(({ defaultSelected }) => defaultSelected) ??
    (select.size > 1 ? undefined : options.find((one) => !one.matches(':disabled')));
  return option === chosen;
}

/** Shows the server's values in fields that the visitor has not changed. */
export function showDefaults(field: Element): void {
  if (field instanceof HTMLSelectElement) {
    for (const option of field.options) option.selected = isChosen(option, field);
  } else if (isField(field)) {
    if (isTyped(field)) field.value = field.defaultValue;
    field.checked = field.defaultChecked;
  }
}

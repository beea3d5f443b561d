/*
 * The visitor's activity: typing, selecting, playing. A form is treated as a whole: untouched parts of it,
 * such as a hidden revision or a token, belong to what was typed.
 */
import { inert, sentFor } from './sent-document.ts';

/** Forms that the visitor has touched, and fields without a form; `sent` once a script has sent them. */
const touched = new WeakMap<Element, 'touched' | 'sent'>();

const EDITORS = 'iframe,canvas,[contenteditable]';

/** The form of a field; for any other element the surrounding one. */
export function formOf(element: Element): Element | null {
  // A field of a form may have the name "form".
  if (element.localName === 'form') return element;
  return (element as HTMLInputElement).form ?? element.closest('form');
}

function onEdit({ target, type }: Event): void {
  if (!(target instanceof Element)) return;
  // A field that was reset fires a change event when it loses the focus.
  if (type === 'input' || isChanged(target)) touched.set(formOf(target) ?? target, 'touched');
}

for (const type of ['input', 'change']) document.addEventListener(type, onEdit, true);
document.addEventListener('reset', ({ target }) => touched.delete(target as Element), true);
// Runs after all other listeners, when it is known whether a script has taken the form.
addEventListener('submit', ({ target, defaultPrevented }) => {
  if (defaultPrevented) {
    if (touched.has(target as Element)) touched.set(target as Element, 'sent');
  } else touched.delete(target as Element);
});

/** Whether the visitor is active in a form, so that all of it must stay. */
export function isAtWork(form: Element, isAsSent: () => boolean): boolean {
  const state = touched.get(form);
  if (state === 'touched' || (state === 'sent' && !isAsSent())) return true;
  const fields = [...document.querySelectorAll('input,textarea,select')];
  const isUsed = (field: Element): boolean => isChanged(field) || isFocused(field);
  // A visitor that reads a field in order to change it relies on its current value.
  if (fields.some((field) => formOf(field) === form && isUsed(field))) return true;
  // Editors that scripts have created do not report what is typed in them.
  return hasEditor(form);
}

/** Whether scripts have created an editor here. */
function hasEditor(root: ParentNode): boolean {
  return [...root.querySelectorAll(EDITORS)].some((editor) => !sentFor.has(editor));
}

/** Whether the visitor works with this very element. */
export function isBusy(element: Element): boolean {
  if (element instanceof HTMLMediaElement) return !element.paused;
  const isTouched = element.localName !== 'form' && touched.has(element);
  return isTouched || isFocused(element) || isChanged(element);
}

/** Whether the page can be left without losing data. */
export function mayLeave(): boolean {
  // The browser reports what is typed in a shadow tree at the element that has it.
  return (
    ![...document.querySelectorAll('*')].some(
      (one) => touched.has(one) || (one.matches(FIELDS) && isBusy(one)),
    ) && !hasEditor(document)
  );
}

const FIELDS = 'input:not([type=hidden]),textarea,select,audio,video,[contenteditable]';

/** A field, an editor or a frame with the focus. Links and buttons may change while they have it. */
function isFocused(element: Element): boolean {
  return (
    element === document.activeElement &&
    (element.matches(`${FIELDS},${EDITORS}`) || element.localName.includes('-'))
  );
}

/** Whether a field contains something else than the value from the server. */
function isChanged(field: Element): boolean {
  if (field instanceof HTMLInputElement) {
    const { value, defaultValue, checked, defaultChecked, files } = field;
    if (files !== null) return files.length > 0;
    return (
      checked !== defaultChecked || (isTyped(field) && value !== defaultValue && !isCleaned(field))
    );
  }
  if (field instanceof HTMLTextAreaElement) return field.value !== lines(field.defaultValue);
  if (field instanceof HTMLSelectElement) {
    return [...field.options].some((option) => option.selected !== isChosen(option, field));
  }
  return false;
}

/** The value of other fields is their attribute, or files. */
function isTyped({ type }: HTMLInputElement): boolean {
  return !/^(?:hidden|submit|button|reset|image|checkbox|radio|file)$/.test(type);
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

function lines(text: string): string {
  return text.replace(/\r\n?/g, '\n');
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
  if (field instanceof HTMLInputElement) {
    if (isTyped(field) && field.value !== field.defaultValue) {
      field.value = field.defaultValue;
    }
    field.checked = field.defaultChecked;
  } else if (field instanceof HTMLTextAreaElement) field.value = field.defaultValue;
  else if (field instanceof HTMLSelectElement) {
    for (const option of field.options) option.selected = isChosen(option, field);
  }
}

/*
 * What the visitor of the page is doing: typing, choosing, playing. A form is one thing here: what
 * its user has not touched in it, such as a hidden revision or a token, belongs to what was typed.
 */
import { sentFor } from './sent-document.ts';

/** Forms that their user has touched, and fields without a form; `sent` once their script has taken them. */
const touched = new WeakMap<Element, 'touched' | 'sent'>();

const EDITORS = 'iframe,canvas,[contenteditable]';

/** The form of a field; of any other element the one around it. */
export function formOf(element: Element): Element | null {
  // A field of a form may be called "form".
  if (element.localName === 'form') return element;
  return (element as HTMLInputElement).form ?? element.closest('form');
}

function onEdit({ target, type }: Event): void {
  if (!(target instanceof Element)) return;
  // A field that was reset tells of a change when it is left.
  if (type === 'input' || isChanged(target)) touched.set(formOf(target) ?? target, 'touched');
}

for (const type of ['input', 'change']) document.addEventListener(type, onEdit, true);
document.addEventListener('reset', ({ target }) => touched.delete(target as Element), true);
// After all others: whether a script has taken the form is known then.
addEventListener('submit', ({ target, defaultPrevented }) => {
  if (defaultPrevented) {
    if (touched.has(target as Element)) touched.set(target as Element, 'sent');
  } else touched.delete(target as Element);
});

/** Whether the visitor is at work in a form, so that all of it has to stay. */
export function isAtWork(form: Element, isAsSent: () => boolean): boolean {
  const state = touched.get(form);
  if (state === 'touched' || (state === 'sent' && !isAsSent())) return true;
  const fields = [...document.querySelectorAll('input,textarea,select')];
  const isUsed = (field: Element): boolean => isChanged(field) || isFocused(field);
  // Whoever reads a field to change it decides by what stands there.
  if (fields.some((field) => formOf(field) === form && isUsed(field))) return true;
  // Editors that scripts have made say nothing of what is typed in them.
  return [...form.querySelectorAll(EDITORS)].some((editor) => !sentFor.has(editor));
}

/** Whether the visitor works with this very element. */
export function isBusy(element: Element): boolean {
  if (element instanceof HTMLMediaElement) return !element.paused;
  const isTouched = element.localName !== 'form' && touched.has(element);
  return isTouched || isFocused(element) || isChanged(element);
}

/** Whether nothing would be lost with the page. */
export function mayLeave(): boolean {
  return (
    ![...document.querySelectorAll(FIELDS)].some(
      (field) => isBusy(field) || touched.has(formOf(field) ?? field),
    ) && ![...document.querySelectorAll(EDITORS)].some((editor) => !sentFor.has(editor))
  );
}

const FIELDS = 'input:not([type=hidden]),textarea,select,audio,video,[contenteditable]';

/** A field, an editor or a frame that has the focus; links and buttons may change under it. */
function isFocused(element: Element): boolean {
  return (
    element === document.activeElement &&
    (element.matches(`${FIELDS},${EDITORS}`) || element.localName.includes('-'))
  );
}

/** Whether a field holds something else than the server has put into it. */
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

/** The value of others is their attribute, or files. */
function isTyped({ type }: HTMLInputElement): boolean {
  return !/^(?:hidden|submit|button|reset|image|checkbox|radio|file)$/.test(type);
}

/** The browser has made another value of the attribute: `type=number value=x` is empty. */
function isCleaned({ type, defaultValue, value }: HTMLInputElement): boolean {
  const fresh = document.createElement('input');
  fresh.type = type;
  fresh.value = defaultValue;
  return fresh.value === value;
}

function lines(text: string): string {
  return text.replace(/\r\n?/g, '\n');
}

/** Whether the server has chosen this option. */
function isChosen(option: HTMLOptionElement, select: HTMLSelectElement): boolean {
  const options = [...select.options];
  if (select.multiple) return option.defaultSelected;
  const chosen =
    options.findLast(({ defaultSelected }) => defaultSelected) ??
    (select.size > 1 ? undefined : options.find(({ disabled }) => !disabled));
  return option === chosen;
}

/** Shows in fields whose visitor has done nothing what the server has put into them. */
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

/*
 * Random pages for the patch of live pages, run in a browser. The page is a row of sections. The server
 * changes any of them, a script and the visitor some. What they did is written down as checks.
 */
import { snapshot, sentFor } from '../../src/client/live/sent-document.ts';
import { patch } from '../../src/client/live/three-way-patch.ts';

const TAGS = ['div', 'p', 'ul', 'span', 'section', 'details', 'x-element', 'canvas', 'template'];

/** A node as text, whatever the order of attributes. */
function canonical(node) {
  if (node.nodeType !== 1) return node.nodeValue;
  const attributes = [...node.attributes].map(({ name, value }) => `${name}=${value}`).sort();
  const children = [...(node.content ?? node).childNodes].map(canonical);
  return `<${node.localName} ${attributes.join(' ')}>${children.join('')}</>`;
}

/** Runs one page through several answers; returns what is wrong with it, or null. */
export function check(seed) {
  let state = seed * 2654435761 + 1;
  const random = (below) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 374761393) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
  const pick = (list) => list[random(list.length)];
  let count = 0;
  const hasScripts = random(4) > 0;
  const hasIds = hasScripts || random(2) === 0;

  const leaf = () => {
    const id = (count += 1);
    return pick([
      { tag: 'p', attributes: { id: `leaf${id}` }, children: [`leaf ${id}`] },
      { tag: 'input', attributes: { name: `f${id}`, value: `value ${id}` }, children: [] },
      { tag: 'input', attributes: { type: 'checkbox', name: `c${id}` }, children: [] },
      { tag: 'textarea', attributes: {}, children: [`area ${id}`] },
      { tag: 'b', attributes: { class: `c${id}` }, children: [`bold ${id}`] },
      `text ${id} `,
    ]);
  };
  const element = (depth) => {
    const tag = pick(TAGS);
    const attributes = {};
    if (random(3) === 0) attributes.class = `k${random(5)} k${random(5)}`;
    if (random(4) === 0) attributes.title = `title ${(count += 1)}`;
    if (hasIds && random(2) === 0) attributes.id = `element${(count += 1)}`;
    const children = [];
    if (random(4) > 0) {
      for (let left = random(5); left > 0; left -= 1) {
        children.push(depth > 0 && random(2) === 0 ? element(depth - 1) : leaf());
      }
    }
    return { tag, attributes, children };
  };
  const section = () => {
    const id = (count += 1);
    const isForm = random(4) === 0;
    const attributes = { 'data-section': id };
    if (hasIds) attributes[pick(['id', 'data-id'])] = `section${id}`;
    const children = [element(2), leaf(), leaf()];
    if (isForm) {
      children.push({
        tag: 'input',
        attributes: { type: 'hidden', name: 'rev', value: id },
        children: [],
      });
    }
    return { tag: isForm ? 'form' : 'main', attributes, children };
  };

  const html = (node) => {
    if (typeof node === 'string') return node;
    const attributes = Object.entries(node.attributes).map(
      ([name, value]) => ` ${name}="${value}"`,
    );
    const start = `<${node.tag}${attributes.join('')}>`;
    return node.tag === 'input'
      ? start
      : `${start}${node.children.map(html).join('')}</${node.tag}>`;
  };
  const parse = (sections) =>
    new DOMParser().parseFromString(`<body>${sections.map(html).join('')}`, 'text/html').body;

  const all = (node) => (typeof node === 'string' ? [] : [node, ...node.children.flatMap(all)]);
  const edit = (sections) => {
    const changed = structuredClone(sections);
    for (let left = random(6); left > 0; left -= 1) {
      const what = random(10);
      if (what === 0) changed.splice(random(changed.length + 1), 0, section());
      else if (what === 1 && changed.length > 1) changed.splice(random(changed.length), 1);
      else if (what === 2)
        changed.splice(random(changed.length), 0, ...changed.splice(random(changed.length), 1));
      else if (changed.length > 0) {
        const node = pick(all(pick(changed)));
        const { children, attributes, tag } = node;
        const id = (count += 1);
        if (what === 3) attributes.title = `new title ${id}`;
        else if (what === 4) attributes.class = `k${random(9)}`;
        else if (tag === 'input') {
          if (attributes.type !== 'checkbox') attributes.value = `new value ${id}`;
        } else if (tag === 'textarea') node.children = [`new area ${id}`];
        else if (what < 7) {
          const at = children.findIndex((child) => typeof child === 'string');
          if (at !== -1) children[at] = `new text ${id} `;
        } else if (what === 7) children.splice(random(children.length + 1), 0, leaf());
        else if (what === 8) children.splice(random(children.length), 1);
        else children.reverse();
      }
    }
    return changed;
  };

  /** Sections that are not the server's alone any more, by their number. */
  const shared = new Set();
  /** Each says what is lost, or null. */
  const checks = [];
  const untouched = new Map();
  const scriptEdit = () => {
    const place = pick([...document.querySelectorAll('[data-section]')]);
    if (place === undefined) return;
    shared.add(place.dataset.section);
    const nodes = [...place.querySelectorAll('*')].filter((one) => sentFor.has(one));
    const node = nodes.length === 0 ? place : pick(nodes);
    const id = (count += 1);
    const keep = (what, holds) => checks.push({ what: `${what} ${id}`, holds });
    const field = pick([...place.querySelectorAll('input:not([type=hidden]),textarea')]);
    switch (random(8)) {
      case 0:
        node.setAttribute(`data-script-${id}`, '');
        keep('attribute', () => node.isConnected && node.hasAttribute(`data-script-${id}`));
        break;
      case 1:
        node.classList.add(`script${id}`);
        keep('class', () => node.isConnected && node.classList.contains(`script${id}`));
        break;
      case 2: {
        if (/^(?:INPUT|TEXTAREA|TEMPLATE)$/.test(node.nodeName)) break;
        const added = document.createElement('em');
        added.textContent = `script ${id}`;
        node.insertBefore(added, pick([...node.childNodes, null]));
        keep(
          'element',
          () =>
            added.isConnected && added.parentNode === node && added.textContent === `script ${id}`,
        );
        break;
      }
      case 3: {
        const text = [...node.childNodes].find((one) => one.nodeType === 3);
        if (text === undefined || node.nodeName === 'TEXTAREA') break;
        text.data = `script text ${id}`;
        checks.splice(0, checks.length, ...checks.filter(({ text: other }) => other !== text));
        checks.push({
          text,
          what: `text ${id}`,
          holds: () => text.isConnected && text.data === `script text ${id}`,
        });
        break;
      }
      case 4: {
        if (/^(?:INPUT|TEXTAREA|TEMPLATE)$/.test(node.nodeName) || node === place) break;
        if ([...checks].some(({ inside }) => inside !== undefined && node.contains(inside))) break;
        if (checks.length > 0) break;
        const built = document.createElement('em');
        built.textContent = `built ${id}`;
        node.replaceChildren(built);
        keep('what was built', () => built.isConnected && built.parentNode === node);
        break;
      }
      default: {
        if (field === undefined) break;
        const form = field.closest('form');
        // A change that is taken back is the server's again.
        if (field.type === 'checkbox') field.checked = !field.defaultChecked;
        else field.value = `typed ${id}`;
        field.dispatchEvent(new Event('input', { bubbles: true }));
        const [value, checked] = [field.value, field.checked];
        for (const other of checks) if (other.field === field) other.holds = () => true;
        checks.push({
          field,
          what: `typed ${id}`,
          holds: () => field.isConnected && field.value === value && field.checked === checked,
        });
        if (form !== null) {
          if (!untouched.has(form))
            keep('form', () => form.isConnected && form.innerHTML === untouched.get(form));
        }
      }
    }
  };

  let sections = Array.from({ length: 1 + random(5) }, section);
  document.body.innerHTML = sections.map(html).join('');
  const sent = snapshot(document.body);
  for (let round = 0; round < 3; round += 1) {
    if (hasScripts) for (let left = random(5); left > 0; left -= 1) scriptEdit();
    for (const { what } of checks) {
      if (!what.startsWith('form')) continue;
      for (const form of document.querySelectorAll('form')) untouched.set(form, form.innerHTML);
    }
    const before = document.body.innerHTML;
    sections = edit(sections);
    const next = parse(sections);
    const expected = next.cloneNode(true);
    patch(sent, next);
    const tell = (what) =>
      `seed ${seed}, round ${round}: ${what}\nbefore   ${before}\nserver   ${expected.innerHTML}\nafter    ${document.body.innerHTML}`;
    for (const { what, holds } of checks) if (!holds()) return tell(`${what} is lost`);
    if (shared.size === 0 && canonical(document.body) !== canonical(expected))
      return tell('not what the server sent');
    for (const one of expected.children) {
      const number = one.dataset.section;
      const shown = document.querySelectorAll(`[data-section="${number}"]`);
      if (shown.length !== 1) return tell(`section ${number} is there ${shown.length} times`);
      if (!shared.has(number) && canonical(shown[0]) !== canonical(one))
        return tell(`section ${number} is not as sent`);
    }
    const order = (body) =>
      [...body.children]
        .map(({ dataset }) => dataset.section)
        .filter((number) => number !== undefined && !shared.has(number));
    if (order(document.body).join() !== order(expected).join()) return tell('the order is another');
    const again = document.body.innerHTML;
    patch(sent, parse(sections));
    if (document.body.innerHTML !== again) return tell('another patch changes more');
  }
  return null;
}

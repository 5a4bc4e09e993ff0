// Builds elements without parsing markup: a string from a recording becomes text, never HTML.

type Props = Record<string, string | number | boolean | ((event: Event) => void)>;
type Child = Node | string | null;

function fill<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [name, given] of Object.entries(props)) {
    if (typeof given === "function") element.addEventListener(name, given);
    else if (given === true) element.setAttribute(name, "");
    else if (given !== false) element.setAttribute(name, String(given));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

export function place(id: string): HTMLElement | null {
  return document.getElementById(id);
}

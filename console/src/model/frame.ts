// Pages and drawings of foreign code, as documents that run nothing and load nothing.
//
// The frame that shows one has no rights (`sandbox=""`), and the policy of the page holds in it too. All that this
// policy would refuse is taken out beforehand, so that a browser has nothing to complain about.

/** A document for a frame, and the height in pixels that it needs. */
export interface FrameDocument {
  html: string;
  height: number;
}

/** The policy of the documents, within that of the page. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'";
const HEIGHTS = { least: 60, most: 460, row: 27, around: 24 };
/** Elements that load, run or replace something. */
const ACTIVE =
  "script, style, link, meta, base, title, iframe, frame, frameset, object, embed, applet, img, image, picture, video, audio, source, track, portal, form, button, input, select, textarea, foreignObject, animate, set";
/** Attributes of drawings that also stand in a style. */
const DRAWN =
  /^(fill|fill-opacity|fill-rule|stroke|stroke-(width|opacity|linecap|linejoin|dasharray|dashoffset|miterlimit)|opacity|font-(size|family|weight|style)|text-anchor|clip-path|clip-rule|mask|marker-(start|mid|end)|stop-color|stop-opacity|display|visibility|color|dominant-baseline|letter-spacing|vector-effect|paint-order)$/;
/** Attributes that name something to load or to do. */
const NAMING = /^(on.*|style|src|srcset|srcdoc|href|xlink:href|action|formaction|background|poster|data|ping|cite|longdesc|manifest|profile|usemap|http-equiv|target|autofocus)$/i;

/** Makes the document of an HTML page. */
export function pageDocument(text: string, style: string): FrameDocument {
  const { body } = new DOMParser().parseFromString(text, "text/html");
  clean(body);
  const rows = body.querySelectorAll("tr, p, li, div, h1, h2, h3").length;
  return wrap(body.innerHTML, style, rows * HEIGHTS.row + HEIGHTS.around);
}

/** Makes the document of an SVG drawing; nothing for a text that is none. */
export function drawingDocument(text: string, style: string): FrameDocument | undefined {
  const drawing = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (drawing.localName !== "svg" || drawing.querySelector("parsererror")) return undefined;
  clean(drawing);
  const [, , width = 0, height = 0] = (drawing.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  const stated = Number.parseFloat(drawing.getAttribute("height") ?? "");
  if (width > 0 && height > 0) {
    drawing.setAttribute("width", String(width));
    drawing.setAttribute("height", String(height));
  }
  const needed = height > 0 ? height : stated > 0 ? stated : HEIGHTS.most;
  return wrap(new XMLSerializer().serializeToString(drawing), style, needed + HEIGHTS.around);
}

function wrap(content: string, style: string, needed: number): FrameDocument {
  const head = `<meta http-equiv="Content-Security-Policy" content="${POLICY}"><style>${style}</style>`;
  const height = Math.round(Math.min(HEIGHTS.most, Math.max(HEIGHTS.least, needed)));
  return { html: `<!doctype html><html><head>${head}</head><body>${content}</body></html>`, height };
}

/** Takes everything active out of an element. */
function clean(root: Element): void {
  for (const element of root.querySelectorAll(ACTIVE)) element.remove();
  for (const element of [root, ...root.querySelectorAll("*")]) {
    draw(element);
    for (const { name, value } of [...element.attributes]) {
      const isInside = /href$/i.test(name) && value.startsWith("#");
      if (NAMING.test(name) && !isInside) element.removeAttribute(name);
    }
  }
}

/** Keeps the style of a part of a drawing as its attributes. */
function draw(element: Element): void {
  const declarations = (element.getAttribute("style") ?? "").split(";");
  for (const declaration of declarations) {
    const at = declaration.indexOf(":");
    const name = declaration.slice(0, at).trim().toLowerCase();
    const value = declaration.slice(at + 1).trim();
    const loads = /url\(\s*['"]?[^#'"\s]/i.test(value);
    if (DRAWN.test(name) && value && !loads) element.setAttribute(name, value);
  }
}

// A workflow as it is drawn, from its file: where its nodes stand, and what their edges join.

import { isWork, type Item, type State } from "./timeline.ts";

export interface Box {
  id: string;
  label: string;
  type: string;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Whether other nodes stand inside it. */
  around: boolean;
}

export interface Line {
  id: string;
  /** An SVG path. */
  path: string;
}

export interface Graph {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

interface Node {
  id: string;
  type?: string;
  displayName?: string;
  parentNode?: string;
  position?: { x?: number; y?: number };
  width?: number;
  height?: number;
}

interface Edge {
  id?: string;
  source: string;
  target: string;
}

const BOX = { width: 128, height: 40 };
const MARGIN = 16;
/** The most containers that stand in each other. */
const DEPTH = 16;

export function graph(definitionJson = "{}"): Graph {
  const { nodes = [], edges = [] } = JSON.parse(definitionJson) as { nodes?: Node[]; edges?: Edge[] };
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Set(nodes.map((node) => node.parentNode).filter((id) => id !== undefined));
  const placed = nodes.map((node, at) => box(node, at, byId, parents.has(node.id)));
  const left = Math.min(0, ...placed.map(({ x }) => x)) - MARGIN;
  const top = Math.min(0, ...placed.map(({ y }) => y)) - MARGIN;
  const boxes = placed
    .map((box) => ({ ...box, x: box.x - left, y: box.y - top }))
    // What stands inside is drawn over what stands around it.
    .sort((one, other) => Number(other.around) - Number(one.around) || other.width - one.width);
  const drawn = new Map(boxes.map((box) => [box.id, box]));
  const lines = edges.flatMap((edge, at) => line(edge, at, drawn));
  return {
    boxes,
    lines,
    width: Math.max(0, ...boxes.map(({ x, width }) => x + width)) + MARGIN,
    height: Math.max(0, ...boxes.map(({ y, height }) => y + height)) + MARGIN,
  };
}

/** Returns how far each node of a graph is in a run, by its id. */
export function states({ boxes }: Graph, items: Item[]): Map<string, State> {
  const drawn = new Set(boxes.map(({ id }) => id));
  const nodes = items.filter((item) => isWork(item)).filter(({ kind }) => kind === "node");
  return new Map(nodes.map(({ id, state }) => [drawnAs(id, drawn), state]));
}

/**
 * Returns the box of a node in a run: itself, or the group or composite that it is a part of. In front
 * of its id stand the zones that it is inside of, each with an iteration: `map#2/loop#0/ask`.
 */
function drawnAs(path: string, drawn: Set<string>): string {
  let found = path;
  for (const id of path.split(/#\d+\//)) {
    const parts = id.split("/");
    const around = parts.map((_, at) => parts.slice(0, parts.length - at).join("/"));
    found = around.find((id) => drawn.has(id)) ?? found;
    if (found !== id) break;
  }
  return found;
}

function box(node: Node, at: number, byId: Map<string, Node>, around: boolean): Box {
  let [x, y] = [node.position?.x ?? at * (BOX.width + 32), node.position?.y ?? 0];
  let parent = byId.get(node.parentNode ?? "");
  for (let depth = 0; parent && depth < DEPTH; depth += 1) {
    x += parent.position?.x ?? 0;
    y += parent.position?.y ?? 0;
    parent = byId.get(parent.parentNode ?? "");
  }
  const { id, type = "", displayName, width, height } = node;
  const size = around ? { width: width ?? 400, height: height ?? 240 } : BOX;
  return { id, label: displayName ?? id, type, x, y, ...size, around };
}

/** Joins the right side of a box with the left side of another one; in a container, its inside. */
function line({ id, source, target }: Edge, at: number, boxes: Map<string, Box>): Line[] {
  const [from, to] = [boxes.get(source), boxes.get(target)];
  if (!from || !to) return [];
  const [x1, y1] = [from.x + from.width, from.y + middle(from)];
  const [x2, y2] = [to.x, to.y + middle(to)];
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  return [{ id: id ?? String(at), path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }];
}

function middle({ height, around }: Box): number {
  return around ? BOX.height / 2 : height / 2;
}

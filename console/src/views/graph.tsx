import { useMemo } from "preact/hooks";

import { graph, states, type Box } from "../model/graph.ts";
import type { Item, State } from "../model/timeline.ts";

/** Characters of a label that a box has room for. */
const MOST = 17;
/** How small a graph is drawn before it is scrolled. */
const SMALLEST = 0.75;

/** A workflow whose nodes light up as they run. */
export function Graph({ name, definitionJson, items }: { name: string; definitionJson: string; items: Item[] }) {
  const drawn = useMemo(() => graph(definitionJson), [definitionJson]);
  const { boxes, lines, width, height } = drawn;
  const lit = states(drawn, items);
  const size = { minWidth: `${width * SMALLEST}px`, maxWidth: `${width}px` };
  return (
    <div class="graph" tabIndex={0}>
      <svg role="img" aria-label={`Graph of ${name}`} style={size} viewBox={`0 0 ${width} ${height}`}>
        {boxes.filter(({ around }) => around).map((box) => <Node key={box.id} box={box} state={lit.get(box.id)} />)}
        {lines.map(({ id, path }) => <path key={id} class="edge" d={path} />)}
        {boxes.filter(({ around }) => !around).map((box) => <Node key={box.id} box={box} state={lit.get(box.id)} />)}
      </svg>
    </div>
  );
}

function Node({ box, state = "" }: { box: Box; state: State | undefined }) {
  const { x, y, width, height, around } = box;
  const type = box.type.replace(/^core:/, "");
  return (
    <g class={`box ${around ? "around" : ""} ${state.replaceAll(" ", "-")}`}>
      <title>{[box.label, box.type, state].filter(Boolean).join(", ")}</title>
      <rect x={x} y={y} width={width} height={height} rx={7} />
      <text x={x + 9} y={y + 17}>{short(box.label)}</text>
      <text class="type" x={x + 9} y={y + 32}>{short(type)}</text>
    </g>
  );
}

function short(text: string): string {
  return text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text;
}

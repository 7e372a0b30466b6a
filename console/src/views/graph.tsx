import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { graph, states, type Box } from "../model/graph.ts";
import type { Item, State } from "../model/timeline.ts";

/** Characters of a label that a box has room for. */
const MOST = 17;
/** The factor of one step, and the largest of all steps; 1 fits the pane. */
const ZOOM = { step: 1.5, most: 12 };
/** Pixels of the pane's height, if the graph needs them. */
const HEIGHT = { least: 180, most: 420 };

/** A workflow whose nodes light up as they run. The whole of it fits its pane, and can be drawn larger. */
export function Graph({ name, definitionJson, items }: { name: string; definitionJson: string; items: Item[] }) {
  const drawn = useMemo(() => graph(definitionJson), [definitionJson]);
  const { boxes, lines, width, height } = drawn;
  const lit = states(drawn, items);
  const [zoom, setZoom] = useState(1);
  const pane = usePane(zoom, setZoom);
  const size = {
    width: `${zoom * 100}%`,
    height: `${zoom * 100}%`,
    maxWidth: `${width * zoom}px`,
    maxHeight: `${height * zoom}px`,
  };
  const room = {
    aspectRatio: `${width} / ${height}`,
    minHeight: `${Math.min(height, HEIGHT.least)}px`,
    maxHeight: `${Math.min(height, HEIGHT.most)}px`,
  };
  return (
    <div class="graph">
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" class="quiet-button" aria-label="Zoom out" disabled={zoom <= 1} onClick={() => setZoom(stepped(-1))}>−</button>
        <button type="button" class="quiet-button" aria-label="Zoom in" disabled={zoom >= ZOOM.most} onClick={() => setZoom(stepped(1))}>+</button>
        <button type="button" class="quiet-button" disabled={zoom === 1} onClick={() => setZoom(1)}>Fit</button>
      </div>
      <div class="pane" ref={pane} tabIndex={0} style={room}>
        <svg role="img" aria-label={`Graph of ${name}`} style={size} viewBox={`0 0 ${width} ${height}`}>
          {boxes.filter(({ around }) => around).map((box) => <Node key={box.id} box={box} state={lit.get(box.id)} />)}
          {lines.map(({ id, path }) => <path key={id} class="edge" d={path} />)}
          {boxes.filter(({ around }) => !around).map((box) => <Node key={box.id} box={box} state={lit.get(box.id)} />)}
        </svg>
      </div>
    </div>
  );
}

/** Returns a pane whose middle stays where it is as it is zoomed, also by the wheel with Ctrl and by pinching. */
function usePane(zoom: number, setZoom: (change: (zoom: number) => number) => void) {
  const pane = useRef<HTMLDivElement>(null);
  const before = useRef(zoom);
  useLayoutEffect(() => {
    const element = pane.current;
    const ratio = zoom / before.current;
    before.current = zoom;
    if (!element || ratio === 1) return;
    element.scrollLeft = (element.scrollLeft + element.clientWidth / 2) * ratio - element.clientWidth / 2;
    element.scrollTop = (element.scrollTop + element.clientHeight / 2) * ratio - element.clientHeight / 2;
  }, [zoom]);
  useEffect(() => {
    const element = pane.current;
    // The browser zooms the whole page unless a listener that is not passive prevents it.
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      setZoom(stepped(-event.deltaY / 200));
    };
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  }, []);
  return pane;
}

/** Returns the change of a zoom by a number of steps. */
function stepped(steps: number): (zoom: number) => number {
  return (zoom) => Math.min(ZOOM.most, Math.max(1, zoom * ZOOM.step ** steps));
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

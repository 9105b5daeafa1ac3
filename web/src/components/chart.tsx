import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { isZone, timeText, zone } from "../time";
import { theme } from "../theme";

export interface ChartSeries {
  label: string;
  values: (number | null)[];
  /** Text of a value. */
  format: (value: number) => string;
  /** "right" has an axis of its own. */
  axis?: "left" | "right";
  bars?: boolean;
}

interface ChartProps {
  /** Describes the chart to screen readers. */
  label: string;
  /** Milliseconds. */
  times: number[];
  series: ChartSeries[];
  height?: number;
  /** Called with the bounds of a range that the user has drawn, in milliseconds. */
  onRange?: (from: number, to: number) => void;
}

const COLOURS = ["--accent", "--warning", "--ok", "--bad"];

/** Values over time. The library is loaded when the first chart is shown. */
export function Chart({ label, times, series, height = 200, onRange }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const range = useRef(onRange);
  range.current = onRange;
  const key = JSON.stringify([series.map(({ label: name, axis, bars }) => [name, axis, bars]), zone(), theme.value, height]);

  useEffect(() => {
    let ended = false;
    let observer: ResizeObserver | undefined;
    void Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]).then(([module]) => {
      const parent = box.current;
      if (ended || parent === null) return;
      const Plot = module.default;
      const style = getComputedStyle(document.documentElement);
      const colour = (name: string) => resolved(parent, style.getPropertyValue(name));
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
      const name = isZone(zone()) && zone() !== "local" ? zone() : undefined;
      const rightSeries = series.find((each) => each.axis === "right");
      const leftSeries = series.find((each) => each.axis !== "right") ?? series[0]!;
      const instance = new Plot(
        {
          width: Math.max(200, parent.clientWidth),
          height,
          ...(name === undefined ? {} : { tzDate: (seconds: number) => Plot.tzDate(new Date(seconds * 1000), name) }),
          cursor: { drag: { setScale: false, x: true, y: false } },
          legend: { live: true, show: series.length > 1 },
          scales: { x: { time: true }, y: { range: fromZero }, right: { range: fromZero } },
          axes: [
            { ...axis, values: (_, ticks, __, ___, step) => ticks.map((seconds) => tickText(seconds * 1000, step)) },
            { ...axis, size: 70, values: (_, ticks) => ticks.map(leftSeries.format) },
            ...(rightSeries === undefined ? [] : [{ ...axis, scale: "right", side: 1 as const, size: 70, grid: { show: false }, values: (_: uPlot, ticks: number[]) => ticks.map(rightSeries.format) }]),
          ],
          series: [
            { label: "Time" },
            ...series.map((each, index) => ({
              label: each.label,
              stroke: colour(COLOURS[index % COLOURS.length]!),
              ...(each.bars ? { fill: colour("--accent-surface"), paths: Plot.paths.bars!({ size: [0.9, 60] }) } : { width: 2 }),
              points: { show: false },
              scale: each.axis === "right" ? "right" : "y",
              value: (_: uPlot, value: number | null) => (value === null ? "–" : each.format(value)),
            })),
          ],
          hooks: {
            setSelect: [
              (self: uPlot) => {
                if (self.select.width < 4) return;
                const from = self.posToVal(self.select.left, "x") * 1000;
                const to = self.posToVal(self.select.left + self.select.width, "x") * 1000;
                self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
                range.current?.(Math.round(from), Math.round(to));
              },
            ],
          },
        },
        data(times, series),
        parent,
      );
      plot.current = instance;
      observer = new ResizeObserver(() => instance.setSize({ width: Math.max(200, parent.clientWidth), height }));
      observer.observe(parent);
    });
    return () => {
      ended = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [key]);

  useEffect(() => plot.current?.setData(data(times, series)), [times, series]);
  return <div class="chart" role="img" aria-label={label} ref={box} style={{ minHeight: `${height + (series.length > 1 ? 40 : 0)}px` }} />;
}

function tickText(ms: number, stepSeconds: number): string {
  const text = timeText(ms, false, false);
  if (stepSeconds >= 86_400 || text.endsWith(" 00:00:00")) return text.slice(5, 10);
  return stepSeconds >= 60 ? text.slice(11, 16) : text.slice(11);
}

function data(times: number[], series: ChartSeries[]): uPlot.AlignedData {
  return [times.map((each) => each / 1000), ...series.map((each) => each.values)];
}

function fromZero(_: uPlot, __: number, most: number): [number, number] {
  return [0, most > 0 ? most * 1.1 : 1];
}

/** A colour that canvas understands: light-dark() is resolved by the browser. */
function resolved(parent: HTMLElement, value: string): string {
  const probe = document.createElement("span");
  probe.style.color = value;
  parent.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

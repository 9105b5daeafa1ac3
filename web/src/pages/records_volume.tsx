import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useData, type Long } from "../api";
import { Chart } from "../components/chart";
import { Field } from "../components/field";
import { ErrorText } from "../components/states";
import { count } from "../numbers";
import { param, setParams } from "../router";
import { timeText } from "../time";

interface Volume {
  times: Long[];
  records: Long[];
  missing: number[];
}

const SPANS: Record<string, [string, number]> = {
  "1h": ["hour", 3_600_000],
  "6h": ["6 hours", 21_600_000],
  "24h": ["day", 86_400_000],
  "7d": ["week", 604_800_000],
  "30d": ["30 days", 2_592_000_000],
};

/** How many records came when. Drawing a range in the chart, or the slider, selects where the list begins. */
export function RecordVolume({ topic }: { topic: string }): JSX.Element {
  const span = SPANS[param("span")] ?? SPANS["24h"]!;
  const from = param("volume_from");
  const to = param("volume_to");
  const stop = to === "" ? Math.ceil(Date.now() / 60_000) * 60_000 : Number(to);
  const start = from === "" ? stop - span[1] : Number(from);
  const volume = useData<Volume>(`/topics/${encodeURIComponent(topic)}/volume?from=${start}&to=${stop}&points=61`);
  const shown = useMemo(() => {
    const times = (volume.data?.times ?? []).slice(0, -1).map(Number);
    return { times, series: [{ label: "Records", values: (volume.data?.records ?? []).map(Number), format: (value: number) => count(Math.round(value)), bars: true }] };
  }, [volume.data]);
  const selected = param("from").startsWith("time:") ? Number(param("from").slice(5)) : start;
  const [moving, setMoving] = useState<number | null>(null);
  const begin = (ms: number) => setParams({ from: `time:${Math.round(ms)}`, mode: "", open: "" });
  return (
    <details class="card" open={param("volume") !== "no"} onToggle={(event) => setParams({ volume: event.currentTarget.open ? "" : "no" })}>
      <summary>Volume over time</summary>
      <div class="toolbar">
        <Field label="Last">
          <select value={param("span") || "24h"} onChange={(event) => setParams({ span: event.currentTarget.value, volume_from: "", volume_to: "" })}>
            {Object.entries(SPANS).map(([key, [title]]) => (
              <option key={key} value={key}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        {from !== "" && (
          <button type="button" onClick={() => setParams({ volume_from: "", volume_to: "" })}>
            Whole span
          </button>
        )}
        <span class="muted">{volume.data && `${count(String(volume.data.records.reduce((total, each) => total + BigInt(each), 0n)))} records`}</span>
      </div>
      {volume.error !== undefined && <ErrorText error={volume.error} />}
      {volume.data !== undefined && volume.data.missing.length > 0 && <p class="error">Partitions whose leader does not answer are left out: {volume.data.missing.join(", ")}</p>}
      {shown.times.length > 0 && <Chart label="Records over time" times={shown.times} series={shown.series} height={110} onRange={(low, high) => setParams({ volume_from: String(low), volume_to: String(high), from: `time:${low}`, mode: "", open: "" })} />}
      <label class="field">
        <span class="field-label">Start the list at {timeText(moving ?? selected, false)}</span>
        <input
          type="range"
          min={start}
          max={stop}
          step={1000}
          value={moving ?? selected}
          onInput={(event) => setMoving(Number(event.currentTarget.value))}
          // The browser's own event, when the slider is let go; Preact's onChange is called for every step.
          onChangeCapture={(event) => {
            setMoving(null);
            begin(Number(event.currentTarget.value));
          }}
        />
      </label>
    </details>
  );
}

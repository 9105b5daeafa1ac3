import type { JSX } from "preact";
import { count } from "../numbers";
import { param, setParams } from "../router";
import { recordId, type RecordRow } from "../records";
import { timeText, zoneText } from "../time";
import { ShownLine } from "./shown_value";
import { Table, type RowSource } from "./table";

/** Records, one a line. The offset opens the record beside the list; which one is open is in the address. */
export function RecordTable({ rows, empty }: { rows: readonly RecordRow[] | RowSource<RecordRow>; empty: string }): JSX.Element {
  const open = param("open");
  return (
    <Table
      label="Records"
      rows={rows}
      id={recordId}
      sortParam="none"
      fixed
      empty={empty}
      columns={[
        { key: "partition", title: "Partition", cell: (row) => row.partition, number: true, optional: true },
        {
          key: "offset",
          title: "Offset",
          number: true,
          cell: (row) => (
            <button type="button" class="link" aria-expanded={open === recordId(row)} onClick={() => setParams({ open: open === recordId(row) ? "" : recordId(row) })}>
              {count(row.offset)}
            </button>
          ),
        },
        { key: "time", title: `Time (${zoneText()})`, cell: (row) => timeText(row.timestamp, true, false), optional: true },
        { key: "key", title: "Key", cell: (row) => <ShownLine of={row.key} /> },
        { key: "value", title: "Value", cell: (row) => <ShownLine of={row.value} /> },
      ]}
    />
  );
}

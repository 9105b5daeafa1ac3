import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { param, setParams } from "../router";

export interface Column<Row> {
  /** Name in the address when the table is sorted by this column. */
  key: string;
  title: string;
  /** A further word in the head, such as the type of the values. */
  note?: string;
  cell: (row: Row) => ComponentChildren;
  /** Makes the column sortable. Negative if the first row comes first. */
  compare?: (a: Row, b: Row) => number;
  /** Numbers are aligned to the right. */
  number?: boolean;
  /** Whether the column is left out on a narrow screen. */
  optional?: boolean;
}

/** Rows in their final order, such as an array; only what is on the screen is taken from it. */
export interface RowSource<Row> {
  readonly length: number;
  slice(from: number, to: number): Row[];
}

interface TableProps<Row> {
  /** Names the table to screen readers. */
  label: string;
  columns: Column<Row>[];
  /** Columns that can be sorted need an array. */
  rows: readonly Row[] | RowSource<Row>;
  id: (row: Row) => string;
  /** Column of the first order; `-` before it reverses. */
  sort?: string;
  /** Name of the parameter in the address that has the order; two tables of a page need two. */
  sortParam?: string;
  empty?: ComponentChildren;
  /** Whether columns share the width of the window, and long texts are cut. */
  fixed?: boolean;
  /** Called with the rows on the screen when they change. */
  onVisible?: (rows: readonly Row[]) => void;
}

const ROW_HEIGHT = 37;
/** Longer tables draw only the rows on the screen. */
const DRAWN_WHOLE = 120;
const AROUND = 10;

/** A table that can be sorted; the order is in the address. Tables of any length stay fast. */
export function Table<Row>({ label, columns, rows, id, sort = "", sortParam = "sort", empty, fixed = false, onVisible }: TableProps<Row>): JSX.Element {
  const order = param(sortParam) || sort;
  const reverse = order.startsWith("-");
  const key = reverse ? order.slice(1) : order;
  const compare = columns.find((column) => column.key === key)?.compare;
  // A list that changes many times a second is not copied.
  const sorted: RowSource<Row> = compare === undefined || !Array.isArray(rows) ? (rows as RowSource<Row>) : [...(rows as Row[])].sort((a, b) => (reverse ? compare(b, a) : compare(a, b)));

  const body = useRef<HTMLTableSectionElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 60]);
  const long = sorted.length > DRAWN_WHOLE;
  const [from, to] = long ? range : [0, sorted.length];
  const drawn = sorted.slice(from, to);

  const measure = () => {
    const box = body.current?.getBoundingClientRect();
    if (box === undefined) return;
    const first = Math.max(0, Math.floor(-box.top / ROW_HEIGHT) - AROUND);
    const last = Math.min(sorted.length, Math.ceil((window.innerHeight - box.top) / ROW_HEIGHT) + AROUND);
    setRange((old) => (old[0] === first && old[1] === last ? old : [Math.min(first, Math.max(0, sorted.length - 1)), Math.max(last, first + 1)]));
  };
  useLayoutEffect(measure, [sorted.length, order]);
  useEffect(() => {
    if (!long) return;
    window.addEventListener("scroll", measure, { passive: true });
    window.addEventListener("resize", measure, { passive: true });
    return () => {
      window.removeEventListener("scroll", measure);
      window.removeEventListener("resize", measure);
    };
  }, [long, sorted.length]);

  const visibleIds = onVisible === undefined ? "" : drawn.map(id).join("\n");
  useEffect(() => onVisible?.(drawn), [visibleIds]);

  const orderBy = (column: Column<Row>) => setParams({ [sortParam]: key === column.key && !reverse ? `-${column.key}` : column.key });
  const className = (column: Column<Row>) => [column.number ? "number" : "", column.optional ? "optional" : ""].join(" ").trim();

  if (rows.length === 0 && empty !== undefined) return <p class="empty">{empty}</p>;
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={label}>
      <table aria-label={label} aria-rowcount={sorted.length + 1} class={`${long ? "long" : ""} ${fixed ? "fixed" : ""}`.trim()}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                class={className(column)}
                data-column={column.key}
                aria-sort={column.compare === undefined ? undefined : column.key === key ? (reverse ? "descending" : "ascending") : "none"}
              >
                {column.compare === undefined ? (
                  <>
                    {column.title}
                    {column.note !== undefined && <small> {column.note}</small>}
                  </>
                ) : (
                  <button type="button" class="sort" onClick={() => orderBy(column)}>
                    {column.title}
                    <span aria-hidden="true">{column.key === key ? (reverse ? " ↓" : " ↑") : ""}</span>
                  </button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {from > 0 && <Space rows={from} columns={columns.length} />}
          {drawn.map((row, index) => (
            <tr key={id(row)} aria-rowindex={from + index + 2}>
              {columns.map((column) => (
                <td key={column.key} class={className(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {to < sorted.length && <Space rows={sorted.length - to} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

/** Takes the place of rows that are not drawn. */
function Space({ rows, columns }: { rows: number; columns: number }): JSX.Element {
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={columns} style={{ height: `${rows * ROW_HEIGHT}px` }} />
    </tr>
  );
}

export function byText<Row>(value: (row: Row) => string): (a: Row, b: Row) => number {
  return (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
}

/** Compares numbers; rows without a number come last in ascending order. */
export function byNumber<Row>(value: (row: Row) => number | bigint | null | undefined): (a: Row, b: Row) => number {
  return (a, b) => {
    const left = value(a);
    const right = value(b);
    if (left === right) return 0;
    if (left === null || left === undefined) return 1;
    if (right === null || right === undefined) return -1;
    return left < right ? -1 : 1;
  };
}

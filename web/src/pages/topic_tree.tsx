import type { JSX } from "preact";
import { count } from "../numbers";
import { Link, path } from "../router";
import type { TopicRow } from "./topics";

interface Branch {
  name: string;
  branches: Map<string, Branch>;
  topics: TopicRow[];
  total: number;
}

/** Topics by the parts of their names, which dots, dashes and underscores separate. */
export function TopicTree({ rows }: { rows: TopicRow[] }): JSX.Element {
  const root: Branch = { name: "", branches: new Map(), topics: [], total: 0 };
  for (const row of rows) {
    let branch = root;
    branch.total += 1;
    for (const part of row.name.split(/(?<=[._-])/).slice(0, -1).slice(0, 20)) {
      let next = branch.branches.get(part);
      if (next === undefined) {
        next = { name: part, branches: new Map(), topics: [], total: 0 };
        branch.branches.set(part, next);
      }
      next.total += 1;
      branch = next;
    }
    branch.topics.push(row);
  }
  return (
    <div class="card tree">
      <Twigs branch={root} prefix="" />
    </div>
  );
}

function Twigs({ branch, prefix }: { branch: Branch; prefix: string }): JSX.Element {
  return (
    <ul>
      {[...branch.branches.values()].map((each) => {
        // A branch with one topic needs no fold.
        if (each.total === 1) return leaf(each).map((row) => <Leaf key={row.name} row={row} prefix={prefix} />);
        return (
          <li key={each.name}>
            <details>
              <summary>
                {each.name} <span class="muted">{count(each.total)}</span>
              </summary>
              <Twigs branch={each} prefix={prefix + each.name} />
            </details>
          </li>
        );
      })}
      {branch.topics.map((row) => (
        <Leaf key={row.name} row={row} prefix={prefix} />
      ))}
    </ul>
  );
}

function leaf(branch: Branch): TopicRow[] {
  return [...branch.topics, ...[...branch.branches.values()].flatMap(leaf)];
}

function Leaf({ row, prefix }: { row: TopicRow; prefix: string }): JSX.Element {
  return (
    <li>
      <Link to={path("topics", row.name)} aria-label={row.name}>
        {row.name.slice(prefix.length)}
      </Link>{" "}
      <span class="muted">{count(row.partitions)} partitions</span>
    </li>
  );
}

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, post, useData } from "../api";
import { Field } from "../components/field";
import { SqlEditor } from "../components/sql_editor";
import type { SqlEditor as LoadedEditor, SqlNames } from "../components/sql_codemirror";
import { SqlResult } from "../components/sql_result";
import { SqlRows, type StartedQuery } from "../components/sql_rows";
import { Badge, Shown } from "../components/states";
import { Link, param, path, setParams } from "../router";
import { mayChange, restriction } from "../session";
import { typeText, type Entity, type SqlSource } from "../sql";
import { forgetTexts, pastTexts, rememberText, type PastText } from "../sql_history";
import { lineAndColumn, placeOf, statementsOf, TextProblem, type Statement } from "../sql_text";
import { timeText } from "../time";
import type { SourceRows } from "./sql";

interface Outcome {
  key: string;
  statement: string;
  results?: Entity[];
  query?: StartedQuery;
  error?: Problem;
  isRunning: boolean;
}

interface Problem {
  message: string;
  /** Its place in the text; null if the server names none. */
  at: number | null;
}

/** Longer texts are not in the address: browsers and servers limit it. */
const MOST_IN_ADDRESS = 6_000;
const EXAMPLE = `-- Ctrl-Enter runs everything, or what is selected.
LIST STREAMS;
`;

/** The editor, its results, and the streams and tables beside them. Nothing runs until the user starts it. */
export function SqlWorkbench({ functions }: { functions: string[] }): JSX.Element {
  const [text, setText] = useState(() => param("sql") || EXAMPLE);
  const [outcomes, setOutcomes] = useState<Outcome[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [running, setRunning] = useState(false);
  const [shownHistory, setShownHistory] = useState<PastText[] | null>(null);
  const editor = useRef<LoadedEditor | null>(null);
  const turn = useRef(0);
  const sources = useData<SourceRows>("/sql/sources", 10_000);
  const names = useMemo(() => namesOf(functions, sources.data?.sources ?? []), [functions, sources.data]);
  const from = param("from") === "earliest" ? "earliest" : "latest";

  // The address follows the text, not every key: browsers limit how often it may change.
  useEffect(() => {
    const timer = window.setTimeout(() => setParams({ sql: text === EXAMPLE || text.length > MOST_IN_ADDRESS ? "" : text }), 400);
    return () => window.clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    const back = () => setText(new URL(window.location.href).searchParams.get("sql") || EXAMPLE);
    window.addEventListener("popstate", back);
    return () => window.removeEventListener("popstate", back);
  }, []);
  useEffect(() => () => void (turn.current += 1), []);

  const change = (value: string) => {
    setText(value);
    setProblem(null);
  };
  const fail = (found: Problem) => {
    setProblem(found);
    editor.current?.mark(found.at);
  };

  const run = async () => {
    const part = editor.current?.selected() ?? { text, from: 0 };
    const mine = ++turn.current;
    setProblem(null);
    editor.current?.mark(null);
    setShownHistory(null);
    let statements: Statement[];
    try {
      statements = statementsOf(part.text);
      if (statements.length === 0) return fail({ message: "There is no statement to run.", at: null });
    } catch (error) {
      if (!(error instanceof TextProblem)) throw error;
      return fail({ message: error.message, at: part.from + error.at });
    }
    rememberText(part.text);
    setRunning(true);
    const found: Outcome[] = statements.map((each, index) => ({ key: `${mine}-${index}`, statement: each.text, isRunning: true }));
    const show = () => {
      if (mine === turn.current) setOutcomes([...found]);
    };
    const session: string[] = [];
    for (const [index, statement] of statements.entries()) {
      show();
      let done: Partial<Outcome>;
      try {
        done = await carryOut(statement, session, from);
      } catch (error) {
        const message = error instanceof ApiError ? error.message : String(error);
        const place = placeOf(message, statement.text, part.from + statement.from);
        // The statements after it are not run.
        found.splice(index, found.length, { ...found[index]!, error: place, isRunning: false });
        if (mine === turn.current) fail(place);
        break;
      }
      if (mine !== turn.current) {
        // Another run has begun, or the page was left.
        if (done.query !== undefined) void fetch(`/api/sql/rows/${done.query.id}`, { method: "DELETE", keepalive: true }).catch(() => undefined);
        return;
      }
      // A component is drawn again only if it gets another object.
      found[index] = { ...found[index]!, ...done, isRunning: false };
    }
    show();
    setRunning(false);
    sources.reload();
  };

  return (
    <div class="sql-columns">
      <div class="sql-work">
        <SqlEditor value={text} names={names} onInput={change} onRun={() => void run()} editor={editor} />
        <div class="toolbar sql-toolbar">
          <button type="button" class="primary" disabled={running} onClick={() => void run()}>
            {running ? "Running…" : "Run"}
          </button>
          <Field label="New queries read">
            <select value={from} onChange={(event) => setParams({ from: event.currentTarget.value === "earliest" ? "earliest" : "" })}>
              <option value="latest">new records</option>
              <option value="earliest">all records</option>
            </select>
          </Field>
          <button type="button" aria-expanded={shownHistory !== null} onClick={() => setShownHistory(shownHistory === null ? pastTexts() : null)}>
            History
          </button>
          {text.length > MOST_IN_ADDRESS && <span class="muted">The text is too long for the address of the page.</span>}
        </div>
        {!mayChange() && <p class="muted">{restriction()} Queries, LIST, DESCRIBE and EXPLAIN can be run.</p>}
        {problem !== null && <ProblemText problem={problem} text={text} onGo={(at) => editor.current?.goTo(at)} />}
        {shownHistory !== null && (
          <History
            texts={shownHistory}
            onTake={(value) => {
              change(value);
              setShownHistory(null);
            }}
            onClear={() => {
              forgetTexts();
              setShownHistory([]);
            }}
          />
        )}
        {outcomes.map((each) => (
          <Result key={each.key} of={each} isOnly={outcomes.length === 1} />
        ))}
      </div>
      <aside class="card" aria-label="Streams and tables">
        <h2>Streams and tables</h2>
        <Shown of={sources}>{(data) => <SourceTree sources={data.sources} />}</Shown>
      </aside>
    </div>
  );
}

/** Sends one statement. SET and DEFINE hold for the statements after them. */
async function carryOut(statement: Statement, session: string[], from: string): Promise<Partial<Outcome>> {
  const body = { sql: statement.text, session: [...session], properties: { "auto.offset.reset": from } };
  if (statement.kind === "query") return { query: await post<StartedQuery>("/sql/rows", body) };
  if (statement.kind === "change" && !mayChange()) throw new ApiError(403, `${restriction()} This statement would change something.`);
  const { results } = await post<{ results: Entity[] }>(statement.kind === "change" ? "/sql/changes" : "/sql/statements", body);
  if (statement.kind === "session") session.push(statement.text);
  return { results };
}

function namesOf(functions: string[], sources: SqlSource[]): SqlNames {
  return {
    functions,
    sources: sources.map((each) => ({ name: each.name, kind: each.type.toLowerCase(), columns: (each.fields ?? []).map((field) => ({ name: field.name, type: typeText(field.schema) })) })),
  };
}

function ProblemText({ problem, text, onGo }: { problem: Problem; text: string; onGo: (at: number) => void }): JSX.Element {
  if (problem.at === null) {
    return (
      <p class="error" role="alert">
        {problem.message}
      </p>
    );
  }
  const at = problem.at;
  const [line, column] = lineAndColumn(text, at);
  return (
    <p class="error" role="alert">
      <button type="button" class="link" onClick={() => onGo(at)}>
        Line {line}, column {column}
      </button>
      : {problem.message}
    </p>
  );
}

function Result({ of, isOnly }: { of: Outcome; isOnly: boolean }): JSX.Element {
  const first = of.statement.split("\n").find((line) => line.trim() !== "") ?? "";
  return (
    <section class="sql-result card" aria-label={`Result of ${first.slice(0, 80)}`}>
      <h2 class="sql-statement">
        <code>{of.statement.replace(/\s+/g, " ").slice(0, 300)}</code>
        {of.isRunning && <Badge>running…</Badge>}
        {of.error !== undefined && <Badge kind="bad">failed</Badge>}
      </h2>
      {of.query !== undefined && <SqlRows query={of.query} />}
      {of.results?.map((each, index) => <SqlResult key={index} of={each} />)}
      {of.results?.length === 0 && (
        <p>
          <Badge kind="ok">done</Badge>
          {!isOnly && /^(set|unset|define|undefine)\b/i.test(of.statement) && " for the statements that follow in this run"}
        </p>
      )}
    </section>
  );
}

function SourceTree({ sources }: { sources: SqlSource[] }): JSX.Element {
  if (sources.length === 0) return <p class="muted">There are none yet. CREATE STREAM and CREATE TABLE make them over topics.</p>;
  return (
    <ul class="sql-sources">
      {[...sources]
        .sort((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1))
        .map((each) => (
          <li key={each.name}>
            <details>
              <summary>
                <bdi>{each.name}</bdi> <Badge>{each.type.toLowerCase()}</Badge>
              </summary>
              <ul>
                {(each.fields ?? []).map((field) => (
                  <li key={field.name}>
                    <bdi class="mono">{field.name}</bdi> <small class="muted">{typeText(field.schema)}{field.type !== undefined && `, ${field.type.toLowerCase()}`}</small>
                  </li>
                ))}
              </ul>
              <Link to={path("sql", "sources", each.name)}>Describe</Link> <Link to={path("topics", each.topic)}>Topic</Link>
            </details>
          </li>
        ))}
    </ul>
  );
}

function History({ texts, onTake, onClear }: { texts: PastText[]; onTake: (text: string) => void; onClear: () => void }): JSX.Element {
  return (
    <section class="card" aria-label="History">
      {texts.length === 0 ? (
        <p class="muted">Nothing was run in this browser yet.</p>
      ) : (
        <>
          <ul class="sql-history">
            {texts.map((each) => (
              <li key={`${each.at} ${each.text}`}>
                <button type="button" class="link" title={each.text} onClick={() => onTake(each.text)}>
                  {each.text.replace(/\s+/g, " ").slice(0, 160)}
                </button>{" "}
                <small class="muted">{timeText(each.at, false)}</small>
              </li>
            ))}
          </ul>
          <button type="button" onClick={onClear}>
            Clear the history
          </button>
        </>
      )}
    </section>
  );
}

import type { ComponentChildren, JSX } from "preact";
import type { ApiError, Loaded } from "../api";

export function Loading(): JSX.Element {
  return (
    <p class="loading" role="status">
      Loading…
    </p>
  );
}

/** Why something cannot be shown. What a cluster lacks is never shown as zero. */
export function Unavailable({ why }: { why: string }): JSX.Element {
  return <p class="unavailable">Not available: {why}</p>;
}

export function ErrorText({ error }: { error: ApiError }): JSX.Element {
  // 501: there is no such service or API; 502: it does not answer.
  if (error.status === 501 || error.status === 502) return <Unavailable why={error.message} />;
  return (
    <p class="error" role="alert">
      {error.message}
    </p>
  );
}

/** The data of a request, or why there is none. Data that could not be refreshed stay, with the reason above them. */
export function Shown<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }): JSX.Element {
  return (
    <>
      {of.error !== undefined && <ErrorText error={of.error} />}
      {of.data !== undefined ? children(of.data) : of.error === undefined && <Loading />}
    </>
  );
}

interface AmountProps {
  /** The number as text; null if nothing of it is known. */
  value: string | null | undefined;
  /** Why the number is unknown or too small; empty if it is exact. */
  gap: string;
}

/** A number that may be unknown, or known in part. It is never shown as zero or as complete then. */
export function Amount({ value, gap }: AmountProps): JSX.Element {
  if (gap === "") return <>{value ?? ""}</>;
  const text = value === null || value === undefined || value === "" ? `unknown: ${gap}` : `at least ${value}: ${gap}`;
  return (
    <span class="unknown" title={text}>
      {text}
    </span>
  );
}

/** A short word with a colour that repeats its meaning. */
export function Badge({ kind = "", children }: { kind?: "" | "ok" | "warning" | "bad"; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${kind}`}>{children}</span>;
}

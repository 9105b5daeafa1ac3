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

/** A short word with a colour that repeats its meaning. */
export function Badge({ kind = "", children }: { kind?: "" | "ok" | "warning" | "bad"; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${kind}`}>{children}</span>;
}

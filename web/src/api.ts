// Requests to the console's server. 64-bit numbers (offsets, sizes, ids, timestamps) are strings in both directions.

import { useEffect, useRef, useState } from "preact/hooks";

/** A 64-bit number as decimal digits: JavaScript's numbers are exact up to 2^53 only. */
export type Long = string;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly kafkaError: string = "",
  ) {
    super(message);
  }
}

export function get<T>(path: string): Promise<T> {
  return call("GET", path);
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return call("POST", path, body);
}

export function patch<T>(path: string, body: unknown): Promise<T> {
  return call("PATCH", path, body);
}

export function put<T>(path: string, body: unknown): Promise<T> {
  return call("PUT", path, body);
}

export function remove<T>(path: string): Promise<T> {
  return call("DELETE", path);
}

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`/api${path}`, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "The console's server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer as T;
  if (response.status === 401) window.dispatchEvent(new Event("headrace:login"));
  const message = answer?.message ?? `The console's server answered with status ${response.status}`;
  throw new ApiError(response.status, message, answer?.kafka_error ?? "");
}

export interface Loaded<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** Asks again now. */
  reload: () => void;
}

/** What a GET returns, asked again every `every` milliseconds while the tab is visible. An error keeps the last data. */
export function useData<T>(path: string | null, every = 0): Loaded<T> {
  return useLoaded(path, () => get<T>(path!), every);
}

/** As `useData`, for any request. It is repeated when `key` changes; null asks for nothing. */
export function useLoaded<T>(key: string | null, load: () => Promise<T>, every = 0): Loaded<T> {
  const [state, setState] = useState<{ key: string | null; data?: T; error?: ApiError }>({ key });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    if (key === null) return;
    let active = true;
    let timer = 0;
    const ask = async () => {
      window.clearTimeout(timer);
      try {
        const data = await latest.current();
        if (active) setState({ key, data });
      } catch (error) {
        const shown = error instanceof ApiError ? error : new ApiError(0, String(error));
        if (active) setState((old) => (old.key === key && old.data !== undefined ? { key, data: old.data, error: shown } : { key, error: shown }));
      }
      if (active && every > 0 && !document.hidden) timer = window.setTimeout(ask, every);
    };
    const visible = () => {
      if (!document.hidden && every > 0) void ask();
    };
    document.addEventListener("visibilitychange", visible);
    void ask();
    return () => {
      active = false;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    };
  }, [key, every, turn]);

  const own = state.key === key ? state : { key };
  return {
    data: (own as { data?: T }).data,
    error: (own as { error?: ApiError }).error,
    reload: () => setTurn((value) => value + 1),
  };
}

// Server-sent events. A browser has six connections per server over HTTP/1.1, so a hidden tab closes its stream and
// resumes when it is visible again; the server continues after the last event id.

export interface EventHandlers {
  /** Called with the name, the data and the id of each event. */
  onEvent: (name: string, data: string, id: string) => void;
  /** The connection was lost (the browser connects again), or is there. */
  onState?: (connected: boolean) => void;
}

/** Subscribes to a stream of events; returns a function that ends it. `url` gets the id of the last event. */
export function subscribe(
  url: (lastId: string) => string,
  names: readonly string[],
  handlers: EventHandlers,
): () => void {
  let source: EventSource | null = null;
  let lastId = "";
  let ended = false;

  const open = () => {
    if (source !== null || document.hidden || ended) return;
    const opened = new EventSource(`/api${url(lastId)}`);
    source = opened;
    opened.onopen = () => handlers.onState?.(true);
    opened.onerror = () => {
      handlers.onState?.(false);
      if (opened.readyState === EventSource.CLOSED && source === opened) {
        source = null;
        window.setTimeout(open, 2000);
      }
    };
    for (const name of names) {
      opened.addEventListener(name, (event) => {
        const message = event as MessageEvent<string>;
        lastId = message.lastEventId || lastId;
        handlers.onEvent(name, message.data, lastId);
      });
    }
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const visibility = () => (document.hidden ? close() : open());

  document.addEventListener("visibilitychange", visibility);
  open();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", visibility);
    close();
  };
}

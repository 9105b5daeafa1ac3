// The newest records of a live list, bounded by their number and size. Adding a batch costs as much as the batch, however
// many records are kept.

import type { RecordRow } from "./records";
import type { RowSource } from "./components/table";

const CHUNK = 1024;

export class RecordRing {
  /** Chunks of records in the order of their arrival; the first may have lost its oldest ones. */
  private chunks: RecordRow[][] = [];
  private skipped = 0;
  private characters = 0;
  length = 0;

  constructor(
    private readonly mostRecords: number,
    private readonly mostCharacters: number,
  ) {}

  /** Adds records, the oldest first. */
  add(records: readonly RecordRow[]): void {
    for (const record of records) {
      let last = this.chunks[this.chunks.length - 1];
      if (last === undefined || last.length === CHUNK) this.chunks.push((last = []));
      last.push(record);
      this.characters += weight(record);
    }
    this.length += records.length;
    while (this.length > this.mostRecords || (this.characters > this.mostCharacters && this.length > 1)) this.removeOldest();
  }

  private removeOldest(): void {
    const first = this.chunks[0]!;
    this.characters -= weight(first[this.skipped]!);
    this.skipped += 1;
    this.length -= 1;
    if (this.skipped === first.length) {
      this.chunks.shift();
      this.skipped = 0;
    }
  }

  /** Records by their place in the list, the newest first. */
  slice(from: number, to: number): RecordRow[] {
    const found: RecordRow[] = [];
    for (let index = Math.max(0, from); index < Math.min(to, this.length); index += 1) {
      const at = this.skipped + this.length - 1 - index;
      found.push(this.chunks[Math.floor(at / CHUNK)]![at % CHUNK]!);
    }
    return found;
  }

  /** The list for a table. It is another object each time: components with signals are not drawn again for equal ones. */
  view(): RowSource<RecordRow> {
    return { length: this.length, slice: (from, to) => this.slice(from, to) };
  }

  /** The list as it is now; records that come later do not change it. */
  frozen(): RecordRow[] {
    return this.slice(0, this.length);
  }
}

function weight(row: RecordRow): number {
  return 200 + (row.key?.text.length ?? 0) + (row.value?.text.length ?? 0);
}

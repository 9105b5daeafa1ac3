// An editor reports its text, and gets it back as a property some time later. While a user types fast it gets texts that are no longer the
// newest; to put those into the editor would undo what was typed since, without end.

export class Echo {
  private reported: string[] = [];

  /** The editor has reported this text. */
  report(text: string): void {
    this.reported.push(text);
  }

  /** Whether a property is one of the reported texts, and not another text from outside. */
  isOwn(text: string): boolean {
    const at = this.reported.lastIndexOf(text);
    this.reported.splice(0, at + 1);
    return at >= 0;
  }
}

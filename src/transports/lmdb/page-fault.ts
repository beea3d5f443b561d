/** What is wrong with a page. The message has no page in it, and no end. */
export class PageFault extends Error {
  readonly page: number;

  constructor(page: number, message: string) {
    super(message);
    this.name = 'PageFault';
    this.page = page;
  }
}

// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { JobDetail } from "../../api/types";
import { TestPage } from "../../testing/page";
import { Links } from "./Links";

let page: TestPage;
afterEach(() => page.end());

async function show(...links: JobDetail["links"]): Promise<void> {
  page = new TestPage(() => undefined);
  await page.show(<Links job={{ links } as unknown as JobDetail} />);
}

it("makes a link of what leads elsewhere, in a tab that knows nothing of this one", async () => {
  await show({ name: "board", url: "https://board.example.org/x", leads_here: false, may_lead_here: false });
  const link = document.querySelector("a");
  expect([link?.href, link?.target, link?.rel]).toEqual(["https://board.example.org/x", "_blank", "noopener noreferrer"]);
});

it.each([
  ["http://127.0.0.1:7788/", true],
  [`http://${window.location.hostname}:7788/`, false],
  [`http://${window.location.hostname.toUpperCase()}:7788/`, false],
  ["http://", false],
])("shows %s as text with a warning", async (url, leads_here) => {
  await show({ name: "TensorBoard", url, leads_here, may_lead_here: false });
  expect(document.querySelector("a")).toBeNull();
  expect(page.text).toContain("TensorBoard");
  expect(page.text).toContain(url);
  expect(page.text).toContain("leads to the portal's machine");
});

it("shows a link that may lead on to the portal's machine as text, and says how to open it", async () => {
  await show({ name: "board", url: "https://board.example.org/x", leads_here: false, may_lead_here: true });
  expect(document.querySelector("a")).toBeNull();
  expect(page.text).toContain("https://board.example.org/x");
  expect(page.text).toContain("open it in a private window");
});

// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { JobDetail } from "../../api/types";
import { TestPage } from "../../testing/page";
import { SharingCard } from "./SharingCard";

// jsdom has no adopted style sheets, which swatches are painted with.
vi.mock("../../lib/highlight", () => ({ jobPaint: () => ({}) }));

const allocation = { type: "a100", count: 1, epoch: 1, gpus: [{ node: "oak-01", index: 0 }], share_percent: 50 };
const sharing = {
  share_percent: 50, memory_mib: 6144, whole_steps_per_s: 8.4, expected_slowdown: 2, expected_source: "share", measured_slowdown: 2.31,
  neighbours: [{ number: 15, project: "Speech", share_percent: 25, state: "running", slowdown: null, samples: 0 }],
};

let page: TestPage;
afterEach(() => page.end());

async function show(job: object) {
  page = new TestPage(() => undefined);
  await page.show(<SharingCard job={job as JobDetail} />);
}
const said = () => Object.fromEntries([...document.querySelectorAll("dt")].map((term) => [term.textContent, term.nextElementSibling?.textContent]));

it("says what it has of its GPU, who else is there, and how much slower it is", async () => {
  await show({ sharing, allocation });
  expect(said()).toEqual({ Share: "50\u2009% of one GPU", "GPU memory": "6\u2009GiB", "Expected slowdown": "2.00\u2009×", "Measured slowdown": "2.31\u2009×" });
  expect([...document.querySelectorAll("li")].map((one) => one.textContent)).toEqual(["15Speech25\u2009%, running"]);
  expect(page.text).toContain("50\u2009% of 1\u2009×\u2009A100");
  expect(page.text).toContain("there it would make 8.40\u2009steps/s");
});

it("says what was measured beside such a neighbour", async () => {
  await show({ sharing: { ...sharing, expected_slowdown: 1.25, expected_source: "pair", neighbours: [{ ...sharing.neighbours[0], slowdown: 1.25, samples: 27 }] }, allocation });
  expect(said()["Expected slowdown"]).toBe("1.25\u2009×");
  expect(page.text).toContain("as measured beside such a neighbour");
  expect(document.querySelector("li")?.textContent).toContain("1.25\u2009× slower beside such a job, by 27 reports");
});

it("says what is not known yet, and that it is alone", async () => {
  await show({ sharing: { ...sharing, memory_mib: null, whole_steps_per_s: null, expected_slowdown: null, measured_slowdown: null, neighbours: [] }, allocation });
  expect(said()).toEqual({ Share: "50\u2009% of one GPU", "GPU memory": "its share of the GPU's", "Expected slowdown": "not known", "Measured slowdown": "not measured yet" });
  expect(page.text).toContain("No other job is on this GPU now.");
});

it("says nothing of neighbours while it has no GPU, and nothing at all of a job with whole ones", async () => {
  await show({ sharing: { ...sharing, neighbours: [] }, allocation: null });
  expect(page.text).not.toContain("Nobody else");
  await page.show(<SharingCard job={{ sharing: null, allocation } as unknown as JobDetail} />);
  expect(document.querySelector("section")).toBeNull();
});

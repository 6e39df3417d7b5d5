// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { Job, JobDetail } from "../../api/types";
import { reasonSentence } from "../../lib/job/jobView";
import { TestPage } from "../../testing/page";
import { DataCard } from "./DataCard";

let page: TestPage;
afterEach(() => page.end());

async function show(spec: object) {
  page = new TestPage(() => undefined);
  await page.show(<DataCard job={{ spec } as JobDetail} />);
}

it("says what a job reads and whence, and nothing of a job without", async () => {
  await show({ data: [{ name: "images", url: "s3://datasets/images", secret: "STORE", read_only: true }, { name: "out", path: "/shared/out", read_only: false }] });
  expect([...document.querySelectorAll("li")].map((one) => one.textContent)).toEqual(["imagess3://datasets/images", "out written, too/shared/out"]);
  expect(page.text).toContain("2 entries");
  await page.end();
  await show({});
  expect(document.querySelector("section")).toBeNull();
});

it("says how far it is in the job's one sentence, before why it was started", async () => {
  await show({});
  const job = { state: "starting", exit: null, reason: { code: "started", text: "It fits." } } as Job;
  expect(reasonSentence({ ...job, fetching: "fetching data images: 1.2 of 4.0 GiB" }, new Date())).toBe("Fetching data images: 1.2 of 4.0 GiB.");
  expect(reasonSentence({ ...job, fetching: null }, new Date())).toBe("It fits.");
});

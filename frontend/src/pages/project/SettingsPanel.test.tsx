// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { ProjectDetail } from "../../api/types";
import { refusal, TestPage } from "../../testing/page";
import { SettingsPanel } from "./SettingsPanel";

const NONE = { account: null, qos: null, partition: null, wckey: null, reservation: null };
const project = (changes: object = {}) => ({
  key: "vision", name: "Vision", path: [], archived_at: null, share_weight: 1, inner_rule: "fairness", priority: null, cluster_shares: {}, slurm: NONE, slurm_above: { ...NONE, qos: "normal" }, with_below: { jobs_running: 2, jobs_queued: 1 }, ...changes,
}) as unknown as ProjectDetail;

let page: TestPage;
afterEach(() => page.end());

it("says what archiving does, and what stands in its way, before it asks for it", async () => {
  page = new TestPage((sent) => ({ status: 409, body: { status: 409, detail: `${sent.path}: 3 jobs are queued or running` } }));
  await page.show(<SettingsPanel project={project()} isAdmin={false} />);
  await page.press("Archive the project");
  expect(page.changes).toEqual([]);
  expect(page.text).toContain("3 jobs are queued or running in it or below: they have to end first");
  expect(page.text).toContain("it can be restored");
  await page.press("Archive the project");
  expect(page.changes).toEqual([{ path: "projects/vision/archive", method: "POST", body: undefined }]);
  expect(page.text).toContain("projects/vision/archive: 3 jobs");
});

it("sends what was changed, and lets nobody set what is not theirs", async () => {
  page = new TestPage(() => refusal("name", "is too long"));
  await page.show(<SettingsPanel project={project()} isAdmin={false} />);
  expect(page.field("Priority of its jobs").disabled).toBe(true);
  expect(page.field("Weight against its siblings").disabled).toBe(true);
  expect(page.button("Save").disabled).toBe(true);
  await page.fill("Name", "Seeing");
  await page.press("Save");
  expect(page.changes).toEqual([{ path: "projects/vision", method: "PATCH", body: { name: "Seeing" } }]);
  expect(page.wrong("Name")).toBe("is too long");
});

it("lets managers of the project above set its weight", async () => {
  page = new TestPage(() => undefined);
  await page.show(<SettingsPanel project={project({ path: [{ key: "lab", name: "Lab", role: "manager" }] })} isAdmin={false} />);
  expect(page.field("Weight against its siblings").disabled).toBe(false);
});

it("takes a weight on each of several clusters", async () => {
  page = new TestPage((sent) => (sent.path === "session" ? { body: { clusters: [{ name: "lab" }, { name: "a100s" }] } } : refusal("cluster_shares.a100s", "is too much")));
  await page.show(<SettingsPanel project={project({ cluster_shares: { lab: 3 } })} isAdmin />);
  expect(page.field("Weight on lab").value).toBe("3");
  await page.fill("Weight on a100s", "2000");
  await page.press("Save");
  expect(page.changes).toEqual([{ path: "projects/vision", method: "PATCH", body: { cluster_shares: { a100s: 2000 } } }]);
  expect(page.wrong("Weight on a100s")).toBe("is too much");
});

it("asks administrators what the project is in Slurm where a cluster is one, and says what it has from above", async () => {
  page = new TestPage((sent) => (sent.path === "session" ? { body: { clusters: [{ name: "lab", engine: "Slurm" }] } } : refusal("slurm.account", "is no name of Slurm's")));
  await page.show(<SettingsPanel project={project()} isAdmin />);
  expect((page.field("QOS in Slurm") as HTMLInputElement).placeholder).toBe("normal");
  expect((page.field("Account in Slurm") as HTMLInputElement).placeholder).toBe("as the cluster");
  await page.fill("Account in Slurm", "a b");
  await page.press("Save");
  expect(page.changes).toEqual([{ path: "projects/vision", method: "PATCH", body: { slurm: { account: "a b" } } }]);
  expect(page.wrong("Account in Slurm")).toBe("is no name of Slurm's");
});

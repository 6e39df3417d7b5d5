// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { JobDetail } from "../../api/types";
import { TestPage } from "../../testing/page";
import { EnvironmentCard } from "./EnvironmentCard";

let page: TestPage;
afterEach(() => page.end());

const built = { id: 4, material: { environment: { digest: "ab".repeat(32), state: "ready" } } };

async function show(environment: object | undefined, runs: object[] = []) {
  page = new TestPage(() => undefined);
  await page.show(<EnvironmentCard job={{ spec: environment ? { environment } : {}, runs, run: { id: 4 } } as unknown as JobDetail} />);
}
const entries = () => [...document.querySelectorAll("li")].map((one) => one.textContent);

it("says which modules, beside the packages, or which image a job has", async () => {
  await show({ modules: ["gcc", "cuda/12.4"], requirements: "einops" }, [built]);
  expect(entries()).toEqual(["modulesgcc cuda/12.4"]);
  expect(page.text).toContain("abababababab");
  await page.end();
  await show({ image: "/shared/pytorch.sif" }, [{ id: 4, material: { code: {}, environment: null } }]);
  expect(entries()).toEqual(["image/shared/pytorch.sif"]);
  expect(document.querySelector("button, .empty")).toBeNull();
});

it("says what a job asks of sbatch", async () => {
  page = new TestPage(() => undefined);
  const slurm = { constraint: "fast&nvlink", exclusive: true, mail_type: ["END", "FAIL"], wckey: null, hint: null };
  await page.show(<EnvironmentCard job={{ spec: { slurm }, runs: [], run: { id: 4 } } as unknown as JobDetail} />);
  expect(entries()).toEqual(["sbatch--constraint=fast&nvlink --exclusive --mail-type=END,FAIL"]);
});

it("is not there for a job without any", async () => {
  await show(undefined, [{ id: 4, material: null }]);
  expect(document.querySelector("section")).toBeNull();
});

import { expect, it } from "vitest";
import type { ClusterNode } from "../../api/types";
import { othersWords } from "./others";

const now = new Date(2026, 10, 28, 12, 0);
const at = (hour: number) => new Date(2026, 10, 28, hour, 20).toISOString();
type Taken = ClusterNode["taken"][number];

function words(states: string[], taken: Partial<Taken>[], engine: string | undefined = "Slurm"): string | null {
  const accelerators = states.map((state) => ({ state })) as ClusterNode["accelerators"];
  return othersWords({ accelerators, taken: taken.map((one) => ({ gpus: 0, cpus: 0, memory_mib: 0, until_at: null, ...one })) }, engine, now);
}

it("says how many GPUs others have, and until when", () => {
  expect(words(["others", "others", "held", "free"], [{ gpus: 2, until_at: at(14) }])).toBe("2 by others in Slurm until 14:20");
  expect(words(["others", "others"], [{ gpus: 1, until_at: at(14) }, { gpus: 1, until_at: at(15) }])).toBe("2 by others in Slurm, the first until 14:20");
  expect(words(["others"], [{ gpus: 1, until_at: at(15) }, { gpus: 1 }])).toBe("1 by others in Slurm, the first until 15:20");
});

it("says nothing of a time that is not known, and counts processors where they have no GPU", () => {
  expect(words(["others"], [{ gpus: 1 }])).toBe("1 by others in Slurm");
  expect(words(["free"], [{ cpus: 12, until_at: at(14) }])).toBe("12 processors by others in Slurm until 14:20");
});

it("is silent where nobody else is", () => expect(words(["free", "held"], [])).toBeNull());

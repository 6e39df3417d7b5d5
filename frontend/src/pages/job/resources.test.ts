import { expect, it } from "vitest";
import type { Resources } from "../../api/types";
import { known, partsAsPercent, profileBasis, profileTitle, profileWords, unknownWords } from "./resources";

const nothing = { gpu: [], gpu_memory: [], gpu_cores: [], pcie: [] };
const launch = { attempt: 1, epoch: 1, type: "titan_xp", gpus: 1, share_percent: 100, emulated: true, source: "processes", interval_s: 5, from_at: "2026-11-24T10:00:00Z", to_at: "2026-11-24T10:01:00Z" } as const;
const found = (changes: Partial<Resources>): Resources => ({ series: { ...nothing, gpu: [[10, 0.5], [15, null], [20, 0.75]], gpu_memory: [[10, 0.1]] }, launches: [launch], profiles: [], emulated: true, ...changes });
const profile: Resources["profiles"][number] = {
  type: "titan_xp", gpus: 1, share_percent: 50, emulated: true, launches: 3, seconds: 720, interval_s: 5, updated_at: "2026-11-24T10:01:00Z",
  mean: { gpu: 0.42, gpu_memory: 0.12, gpu_cores: null, pcie: null }, peak: { gpu: 0.9, gpu_memory: 0.14, gpu_cores: null, pcie: null },
  history: { gpu: [0.42], gpu_memory: [0.12], gpu_cores: [null], pcie: [null] },
};

it("draws parts in percent, with a gap between launches", () => {
  const data = partsAsPercent(found({}).series.gpu);
  expect(data.times).toEqual([10, 15, 20]);
  expect(data.values).toEqual([50, null, 75]);
});

it("knows which resources were said", () => {
  expect(known(found({}).series)).toEqual(["gpu", "gpu_memory"]);
  expect(known(nothing)).toEqual([]);
});

it("says why others are not there", () => {
  expect(unknownWords(found({}))).toBe("GPU cores and PCIe: emulated devices have none.");
  expect(unknownWords(found({ emulated: false }))).toBe("GPU cores and PCIe: the driver does not say it.");
  expect(unknownWords(found({ emulated: false, launches: [{ ...launch, share_percent: 50 }] }))).toBe("GPU cores and PCIe: of a part of a GPU the driver does not say it.");
  expect(unknownWords(found({ launches: [], series: nothing }))).toBe("");
});

it("says what the program used on a device, and on what that rests", () => {
  expect(profileTitle(profile)).toBe("50\u2009% of 1\u2009×\u2009Titan XP");
  expect(profileWords(profile)).toBe("GPU use 42\u2009%, at most 90\u2009%; GPU memory 12\u2009%, at most 14\u2009%");
  expect(profileBasis(profile)).toBe("3 launches, 12\u2009min, emulated");
});

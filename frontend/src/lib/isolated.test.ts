import { expect, it } from "vitest";
import { isolated, sentenceOf } from "./isolated";

it("keeps the direction of a name from what stands beside it", () => {
  expect(isolated("resnet 50")).toBe("resnet 50");
  expect(isolated("مرحبا")).toBe("\u2068مرحبا\u2069");
  expect(isolated("safe\u202egnp.exe")).toBe("\u2068safe\u202egnp.exe\u2069");
});

it("keeps names within a sentence to themselves, wherever they stand", () => {
  expect(sentenceOf("Speech may hold 12 GPUs.")).toBe("Speech may hold 12 GPUs.");
  expect(sentenceOf("תמונה may hold 12 GPUs and holds 6.")).toBe("\u2068תמונה\u2069 may hold 12 GPUs and holds 6.");
  expect(sentenceOf("#7 אימון מודל: 3 GPUs")).toBe("#7 \u2068אימון מודל\u2069: 3 GPUs");
  expect(sentenceOf("אימון, تدريب and 2 others")).toBe("\u2068אימון\u2069, \u2068تدريب\u2069 and 2 others");
  expect(sentenceOf("אימון_2 of מודל")).toBe("\u2068אימון\u2069_2 of \u2068מודל\u2069");
});

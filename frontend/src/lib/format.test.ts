import { describe, expect, it } from "vitest";
import { basisOf, bytes, count, duration, fixed, gangWords, gibibytes, indexRanges, moment, money, number, partOf, percent, preciseDuration, range, relative, trimmed, typeName, variance } from "./format";

describe("numbers", () => {
  it.each([
    [8.4, "8.40"], [91.26, "91.3"], [482, "482"], [0.014, "0.0140"], [12345.6, "12,346"], [9.996, "10.0"], [0, "0"], [-1.5, "\u22121.50"], [1e-9, "0"],
  ])("shows three significant digits: %f", (value, shown) => expect(number(value)).toBe(shown));

  it("keeps unknown values out of sight", () => expect(number(NaN)).toBe("–"));
  it("groups thousands only before the point", () => expect(fixed(1234567.8912, 4)).toBe("1,234,567.8912"));
  it("trims zeros of settings", () => expect([1, 0.04, 12.5, 100].map(trimmed)).toEqual(["1", "0.04", "12.5", "100"]));
  it("shows variances beside their bound", () => expect([0.014, 0.04, 0.0001].map(variance)).toEqual(["0.014", "0.040", "0.000"]));
  it("puts a thin space before units", () => expect(percent(0.91)).toBe("91\u2009%"));
  it("scales bytes", () => expect([999, 482_000_000].map(bytes)).toEqual(["999\u2009B", "482\u2009MB"]));
  it("names ranges", () => expect([range(1, 4), range(2, 2), range(2, null)]).toEqual(["1–4", "2", "2 or more"]));
  it("scales memory of GPUs", () => expect([6144, 1536].map(gibibytes)).toEqual(["6\u2009GiB", "1.5\u2009GiB"]));
  it("joins neighbouring indices", () => expect(indexRanges([5, 0, 2, 1])).toBe("0–2, 5"));
  it("counts things", () => expect([count(1, "job"), count(12, "job")]).toEqual(["1 job", "12 jobs"]));
});

describe("money", () => {
  it("stands behind its symbol, with cents", () => expect(money("29.794", "USD")).toBe("$29.79"));
  it("drops cents of thousands", () => expect(money(11904.2, "USD")).toBe("$11,904"));
  it("shows fractions of a cent", () => expect(money("0.0012", "EUR")).toBe("€0.0012"));
  it("has a true minus and writes unknown currencies out", () => expect(money(-3, "CHF")).toBe("\u2212CHF\u20093.00"));
});

describe("time", () => {
  const now = new Date(2026, 10, 21, 14, 32, 10);
  it.each([
    [18, "18\u2009s"], [59.6, "1\u2009min"], [540, "9\u2009min"], [5100, "1\u2009h 25\u2009min"], [7200, "2\u2009h"], [273_600, "3\u2009d 4\u2009h"],
  ])("names durations: %f s", (seconds, shown) => expect(duration(seconds)).toBe(shown));
  it("keeps seconds where they matter", () => expect([preciseDuration(126), preciseDuration(2.64)]).toEqual(["2\u2009min 6\u2009s", "2.6\u2009s"]));
  it("gives the day only when it is another", () => {
    expect(moment(new Date(2026, 10, 21, 15, 57), now)).toBe("15:57");
    expect(moment(new Date(2026, 10, 19, 9, 5), now)).toBe("Thu 09:05");
    expect(moment(new Date(2026, 10, 3, 9, 12), now)).toBe("3 Nov 09:12");
  });
  it("says which way", () => {
    expect(relative(new Date(now.getTime() + 54 * 60_000), now)).toBe("in 54\u2009min");
    expect(relative(new Date(now.getTime() - 3600_000), now)).toBe("1\u2009h ago");
  });
});

describe("names", () => {
  it("says what a throughput rests on, and how old that is", () => {
    expect(basisOf("measured", 10_800, 47)).toBe("measured, 3\u2009h old, 47 samples");
    expect(basisOf("estimated", null, 0, 0.3)).toBe("estimated, ±30\u2009%");
    expect([basisOf("catalogue", null, 0), basisOf("user", null, 0)]).toEqual(["from the catalogue", "from user"]);
  });
  it("says which GPUs, and which part of one", () => {
    expect(gangWords({ type: "a100", count: 2, share_percent: 100 })).toBe("2\u2009×\u2009A100");
    expect(gangWords({ type: "a100", count: 1, share_percent: 50 })).toBe("50\u2009% of 1\u2009×\u2009A100");
    expect([partOf(undefined, "1 GPU"), partOf(29, "1 GPU")]).toEqual(["1 GPU", "29\u2009% of 1 GPU"]);
  });
  it("reads accelerator types", () => expect(["titan_xp", "h200", "l40s"].map(typeName)).toEqual(["Titan XP", "H200", "L40S"]));
});

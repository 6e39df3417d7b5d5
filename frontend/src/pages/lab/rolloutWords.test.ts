import { expect, it } from "vitest";
import type { ShadowDecision } from "../../api/types";
import { boundWords, decisionWords, guardOf, indicator, restsOn, roundsWords, textsOf, INDICATORS } from "./rolloutWords";

it("writes bounds as people type them, and reads them back", () => {
  const limits = { wait_p95_s: 900, slowdown_variance: null, utilisation: 0.555 };
  const texts = textsOf(limits);
  expect(texts).toEqual({ wait_p95_s: "15", slowdown_variance: "", utilisation: "55.5" });
  const guard = guardOf("1.5", "10", texts);
  expect(guard.guard_s).toBe(5_400);
  expect(guard.bounds.wait_p95_s).toEqual({ most: 900 });
  expect(guard.bounds.slowdown_variance).toBeNull();
  expect(guard.bounds.utilisation?.least).toBeCloseTo(0.555);
});

it("says what a bound is, and what is not known", () => {
  expect(boundWords("utilisation", 0.5)).toBe("at least 50.0\u2009%");
  expect(boundWords("wait_p95_s", null)).toBe("not watched");
  expect(indicator("slowdown_variance", null)).toBe("–");
  expect(indicator("wait_p95_s", 0)).toBe("0 s");
  expect(restsOn({ wait_p95_s: 1, slowdown_variance: null, utilisation: null, waits: 2, ended: 0, samples: 0 }, INDICATORS[0]!)).toBe("2 jobs that waited");
});

it("says what the shadow would have done", () => {
  const figures = { gpus: 4, running: 1, starting: 1, resized: 0, preempted: 0, variance: null, relative_throughput: null };
  const one = { round: 4, last_round: 6, different: 2, elsewhere: 0, live: { ...figures, starting: 2 }, candidate: figures } as ShadowDecision;
  expect(roundsWords(one)).toBe("Rounds 4 to 6");
  expect(decisionWords(one)).toBe("2 jobs would have other GPUs; 1 start and 0 jobs preempted, against 2 and 0.");
  expect(decisionWords({ ...one, different: 0 })).toBe("The same for every job.");
  expect(decisionWords({ ...one, different: 0, elsewhere: 1 })).toContain("other ones for 1 job");
});

import { useEffect, useState } from "react";
import { useConnection } from "./live/liveContext";

/** Ticks with the wall clock; stands still at the last word from the portal while the connection is lost. */
export function useNow(everyMs = 1000): Date {
  const { phase, lostAt } = useConnection();
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return new Date(phase === "lost" && lostAt ? lostAt : now);
}

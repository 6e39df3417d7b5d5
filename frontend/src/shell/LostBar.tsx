import { useEffect, useState } from "react";
import { clock } from "../lib/format";
import { useConnection, useReconnect } from "../lib/live/liveContext";

/** Amber bar under the top bar for as long as there is no word from the portal. */
export function ConnectionBar() {
  const { phase, lostAt, retryAt } = useConnection();
  const reconnect = useReconnect();
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (phase !== "lost") return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [phase, retryAt]);
  if (phase !== "lost" || lostAt === null) return null;
  const wait = Math.max(0, Math.ceil(((retryAt ?? now) - now) / 1000));
  return (
    <div className="banner warn" data-testid="connection-lost">
      <span>
        Connection lost at {clock(new Date(lostAt), true)}. Figures are from then. {wait > 0 ? `Trying again in ${wait} s.` : "Trying again."}
      </span>
      <button type="button" className="btn sm" onClick={reconnect}>Try now</button>
    </div>
  );
}

/** Says it once to those who listen instead of look, without reading the countdown aloud. */
export function LostBar() {
  const { phase } = useConnection();
  return <div className="vh" role="status">{phase === "lost" ? "Connection lost" : ""}</div>;
}

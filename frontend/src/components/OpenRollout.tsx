import { Link } from "react-router";
import { useOpenRollout } from "../api/rolloutHooks";
import { moment } from "../lib/format";
import { PHASE_CHIPS, PHASE_WORDS } from "../lib/rolloutPhases";
import { Name } from "./Name";

/** That a policy is on its way into force, and where more is said of it; nothing while none is. */
export function OpenRollout() {
  const row = useOpenRollout().data;
  if (!row) return null;
  return (
    <div className="panel" role="status" style={{ display: "flex", flexDirection: "row", gap: 10, alignItems: "center", flexWrap: "wrap", padding: "10px 14px" }}>
      <span className={PHASE_CHIPS[row.phase]}>{PHASE_WORDS[row.phase]}</span>
      <span className="grow">
        <b style={{ fontWeight: 600 }}><Name>{row.label}</Name></b>{" "}
        {row.phase === "live" && row.guard_until ? `is in force and watched until ${moment(new Date(row.guard_until), new Date())}; if a bound is broken, ${row.previous?.policy} comes back by itself.` : "decides beside the live policy; nothing of it is done."}
      </span>
      <Link to={`/lab/rollouts/${row.id}`} className="btn sm">Look at it</Link>
    </div>
  );
}

import type { Simulation } from "../../api/types";
import { part } from "./lab";
import css from "./lab.module.css";

export function Progress({ simulation }: { simulation: Simulation }) {
  const done = Math.round(part(simulation) * 100);
  return (
    <div className={css.bar} role="progressbar" aria-label="Jobs simulated" aria-valuemin={0} aria-valuemax={100} aria-valuenow={done}>
      <i style={{ width: `${done}%` }} />
    </div>
  );
}

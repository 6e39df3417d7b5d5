import { Modal } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useState } from "react";
import { useNavigate } from "react-router";
import { useJobSearch } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { StateChip } from "../../components/StateChip";
import { isolated } from "../../lib/isolated";

const SHOWN = 8;

/** Which other job to lay beside this one: found by number or name, at first those of the same name. */
export function CompareDialog({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState(job.name);
  const [settled] = useDebouncedValue(typed.replace(/^#/, "").trim(), 200);
  const found = useJobSearch(settled);
  const others = (found.data?.results ?? []).filter((other) => other.number !== job.number).slice(0, SHOWN);
  const open = (other: number) => void navigate(`/jobs/compare?jobs=${job.number},${other}`);
  return (
    <Modal opened onClose={onClose} title={`Compare ${job.number} ${isolated(job.name)} with`} size={440} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 10 }}>
        <input className="in" type="search" aria-label="Name or number of the other job" placeholder="Name or number" value={typed} onChange={(event) => setTyped(event.target.value)} data-autofocus />
        {others.map((other) => (
          <button key={other.number} type="button" className="btn" style={{ justifyContent: "space-between" }} onClick={() => open(other.number)}>
            <JobRef number={other.number} name={other.name} array={other.array} link={false} /><StateChip state={other.state} />
          </button>
        ))}
        {others.length === 0 && <p className="sub" role="status">{settled === "" ? "Type a name or a number." : found.isFetching ? "Searching" : "No other job has this number or name."}</p>}
        {found.error && <div className="fault" role="alert" style={{ margin: 0 }}>{found.error.message}</div>}
      </div>
    </Modal>
  );
}

import { useDebouncedValue } from "@mantine/hooks";
import { useState, type KeyboardEvent } from "react";
import { useNavigate } from "react-router";
import { useJobSearch } from "../api/hooks";
import { JobRef } from "../components/JobRef";
import { StateChip } from "../components/StateChip";
import { Icon } from "../components/icons";
import { useLiveJobs } from "../lib/live/liveContext";
import type { JobState } from "../lib/job/jobState";

interface Hit {
  number: number;
  name: string;
  state: JobState;
}

function useHits(text: string): { hits: Hit[]; searching: boolean } {
  const live = useLiveJobs();
  const wanted = text.replace(/^#/, "").trim().toLowerCase();
  const [settled] = useDebouncedValue(wanted, 200);
  const found = useJobSearch(settled);
  if (!wanted) return { hits: [], searching: false };
  const hits = new Map<number, Hit>();
  for (const job of live.values()) {
    if (!job.full) continue;
    if (String(job.number).startsWith(wanted) || job.full.name.toLowerCase().includes(wanted)) hits.set(job.number, job.full);
  }
  for (const job of settled === wanted ? (found.data?.results ?? []) : []) hits.set(job.number, job);
  const exact = (hit: Hit) => (String(hit.number) === wanted ? 1 : 0);
  const sorted = [...hits.values()].sort((a, b) => exact(b) - exact(a) || b.number - a.number);
  return { hits: sorted.slice(0, 8), searching: found.isFetching || settled !== wanted };
}

export function SearchBox() {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const { hits, searching } = useHits(text);
  const navigate = useNavigate();
  const go = (path: string) => {
    setOpen(false);
    setText("");
    (document.activeElement as HTMLElement | null)?.blur();
    void navigate(path);
  };
  const onKey = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : -1) + hits.length) % Math.max(1, hits.length));
    } else if (event.key === "Enter" && text.trim()) {
      const hit = hits[at];
      go(hit ? `/jobs/${hit.number}` : `/jobs?search=${encodeURIComponent(text.trim())}`);
    } else if (event.key === "Escape") {
      setText("");
      event.currentTarget.blur();
    }
  };
  const shown = open && text.trim() !== "";
  return (
    <div className="search" role="search" onBlur={(event) => event.currentTarget.contains(event.relatedTarget) || setOpen(false)}>
      <Icon name="search" size={14} />
      <input
        id="search" type="search" placeholder="Search or go to" aria-label="Search jobs by number or name" autoComplete="off"
        role="combobox" aria-expanded={shown} aria-controls="search-hits" aria-activedescendant={shown && hits[at] ? `hit-${hits[at].number}` : undefined}
        value={text} onFocus={() => setOpen(true)} onKeyDown={onKey}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
          setOpen(true);
        }}
      />
      {!text && <kbd>/</kbd>}
      {shown && (
        <div className="hits" id="search-hits" role="listbox" aria-label="Jobs">
          {hits.map((hit, i) => (
            <div
              key={hit.number} id={`hit-${hit.number}`} role="option" aria-selected={i === at} className={i === at ? "hit on" : "hit"}
              onPointerDown={(event) => {
                event.preventDefault();
                go(`/jobs/${hit.number}`);
              }}
            >
              <JobRef number={hit.number} name={hit.name} link={false} />
              <StateChip state={hit.state} />
            </div>
          ))}
          {hits.length === 0 && <p role="status">{searching ? "Searching" : "No job has this number or name. Enter lists all that match."}</p>}
        </div>
      )}
    </div>
  );
}

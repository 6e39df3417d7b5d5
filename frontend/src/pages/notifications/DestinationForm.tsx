import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useChangeDestination, useCreateDestination } from "../../api/noticeHooks";
import type { Destination, NewDestination, NoticeKind, Session } from "../../api/types";
import { Choice, Text } from "../../components/TextField";
import { isolated } from "../../lib/isolated";
import { NOTICE_KINDS, offeredKinds, USUAL_KINDS } from "./notices";

interface Props {
  /** What is changed; null for a new one. */
  row: Destination | null;
  projects: Session["projects"];
  isAdmin: boolean;
  /** Empty where the portal sends no e-mail. */
  email: string;
  onMade: (made: { name: string; secret: string }) => void;
  onClose: () => void;
}

type Kind = Destination["kind"];
const TEMPLATES: [kind: Kind, title: string, what: string][] = [
  ["webhook", "Webhook", "signed JSON to a program"],
  ["slack", "Slack", "also Mattermost and others"],
  ["email", "E-mail", "to your own address"],
];
const PLACEHOLDER: Record<Kind, string> = { webhook: "https://ci.example.org/evenkeel", slack: "https://hooks.slack.com/services/…", email: "" };

export function DestinationForm({ row, projects, isAdmin, email, onMade, onClose }: Props) {
  const create = useCreateDestination();
  const change = useChangeDestination();
  const [kind, setKind] = useState<Kind>(row?.kind ?? "webhook");
  const [name, setName] = useState(row?.name ?? "");
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<NoticeKind[]>(row?.events ?? USUAL_KINDS);
  const [ownJobs, setOwnJobs] = useState(row?.own_jobs ?? true);
  const [project, setProject] = useState(row?.project ?? "");
  const [minutes, setMinutes] = useState(String(row?.waiting_minutes ?? 60));
  const error = create.error ?? change.error;
  const toggle = (one: NoticeKind) => setEvents(events.includes(one) ? events.filter((other) => other !== one) : [...events, one]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wish = { name: name.trim(), events, own_jobs: ownJobs, project: project || null, waiting_minutes: Number(minutes || 60) };
    if (row) {
      change.mutate({ id: row.id, ...wish, ...(url.trim() ? { url: url.trim() } : {}) }, { onSuccess: onClose });
      return;
    }
    const made = (one: NewDestination) => {
      if (one.secret) onMade({ name: one.name, secret: one.secret });
      onClose();
    };
    create.mutate({ ...wish, kind, url: kind === "email" ? null : url.trim() }, { onSuccess: made });
  };
  return (
    <Modal opened onClose={onClose} title={row ? `Change ${isolated(row.name)}` : "New destination"} size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end" }}>
        {!row && <Templates kind={kind} email={email} onChange={setKind} />}
        <Text label="Name" value={name} onChange={setName} required placeholder="what it is for" />
        {kind === "email" ? <p className="sub" style={{ flexBasis: "100%" }}>To {row?.address ?? email}, the address of your account.</p> : (
          <div style={{ flexBasis: "100%" }}>
            <Text label={row ? `Another URL than that at ${row.address}` : "URL"} value={url} onChange={setUrl} required={!row} placeholder={row ? "left empty: as it was" : PLACEHOLDER[kind]} />
          </div>
        )}
        <Choice label="Tells of" value={ownJobs ? "own" : "all"} onChange={(value) => { setOwnJobs(value === "own"); if (value === "all" && project === "") setProject(projects[0]?.key ?? ""); }} options={[["own", "my jobs"], ["all", "all jobs of a project and below"]]} />
        <Choice label="Project" value={project} onChange={setProject} options={placesOf(projects, project, ownJobs)} />
        <Kinds chosen={events} offered={offeredKinds(isAdmin)} onToggle={toggle} />
        {events.includes("job.waiting") && <Text label="Tell of a job that waits for minutes" value={minutes} onChange={setMinutes} number required />}
        {error && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={create.isPending || change.isPending || events.length === 0}>{row ? "Save" : "Add destination"}</button>
        </div>
      </form>
    </Modal>
  );
}

function placesOf(projects: Session["projects"], chosen: string, ownJobs: boolean): [string, string][] {
  const places = projects.map((one): [string, string] => [one.key, one.name]);
  if (ownJobs) places.unshift(["", "all my projects"]);
  return places.some(([key]) => key === chosen) ? places : [...places, [chosen, chosen || "choose one"]];
}

function Templates({ kind, email, onChange }: { kind: Kind; email: string; onChange: (kind: Kind) => void }) {
  const offered = TEMPLATES.filter(([one]) => one !== "email" || email !== "");
  return (
    <div className="pick" role="group" aria-label="Kind" style={{ flexBasis: "100%" }}>
      {offered.map(([one, title, what]) => (
        <button key={one} type="button" className="card" aria-pressed={kind === one} onClick={() => onChange(one)}>{title}<small>{what}</small></button>
      ))}
    </div>
  );
}

function Kinds({ chosen, offered, onToggle }: { chosen: NoticeKind[]; offered: NoticeKind[]; onToggle: (kind: NoticeKind) => void }) {
  return (
    <fieldset className="f" style={{ flexBasis: "100%" }}>
      <legend>Tell me when</legend>
      <div style={{ display: "grid", gridTemplateColumns: "repeat(auto-fill, minmax(210px, 1fr))", gap: "6px 12px", paddingTop: 4 }}>
        {offered.map((kind) => (
          <label key={kind} style={{ display: "flex", gap: 6, alignItems: "center", fontWeight: 400 }}>
            <input type="checkbox" checked={chosen.includes(kind)} onChange={() => onToggle(kind)} />{NOTICE_KINDS[kind]}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
